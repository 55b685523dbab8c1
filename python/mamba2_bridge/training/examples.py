"""What the model is given and asked for: windows of rows, scaled, in the model's dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.exceptions import DataError
from mamba2_bridge.training.windows import Rows, windows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge.training.scaling import Scaling

# windows of one check: bounds the memory, changes no result
_CHECKED_AT_ONCE = 4096


@dataclass(frozen=True)
class Examples:
    """Examples by the row at which their window ends.

    Attributes
    ----------
    values : ndarray
        (rows, columns), the target first, in the user's units.
    calendar : ndarray
        (rows, k): inputs that are not scaled; k may be 0.
    scaling : Scaling
    window, horizon : int
    dtype : str
        Of what is returned to the model.
    """

    values: NDArray[np.float64]
    calendar: NDArray[np.float64]
    scaling: Scaling
    window: int
    horizon: int
    dtype: str

    @property
    def d_input(self) -> int:
        """Number of inputs of a timestep."""
        return int(self.values.shape[1] + self.calendar.shape[1])

    def inputs(self, ends: Rows) -> NDArray[Any]:
        """Return (n, window, d_input)."""
        scaled = self.scaling.inputs(windows_of(self.values, ends, self.window))
        known = windows_of(self.calendar, ends, self.window)
        return np.concatenate([scaled, known], axis=2).astype(self.dtype)

    def targets(self, ends: Rows) -> NDArray[Any]:
        """Return (n, 1): what the model should answer; the rows it lies in must exist."""
        windows = windows_of(self.values, ends, self.window)
        scaled = self.scaling.targets(windows, self.values[ends + self.horizon, 0])
        return scaled[:, None].astype(self.dtype)

    def check_finite(self, ends: Rows, columns: tuple[str, ...]) -> None:
        """Check that the model can be trained and tested on windows that end at `ends`.

        Raises
        ------
        DataError
            Naming the column whose scaled values, or their squares in a loss, overflow the model's dtype.
        """
        for at in range(0, len(ends), _CHECKED_AT_ONCE):
            some = ends[at : at + _CHECKED_AT_ONCE]
            with np.errstate(all="ignore"):  # told below, by column
                inputs, targets = self.inputs(some), self.targets(some)
                wrong_inputs = ~np.isfinite(inputs[:, :, : len(columns)] ** 2).all(axis=1)  # (n, columns)
                wrong_inputs[:, 0] |= ~np.isfinite(targets[:, 0] ** 2)
            if wrong_inputs.any():
                window, column = np.argwhere(wrong_inputs)[0]
                last = int(some[window])
                raise DataError(
                    f"column {columns[column]!r}: scaled by the training part, the values of rows"
                    f" {last - self.window + 2} to {last + self.horizon + 1} are too large for {self.dtype}"
                )

    def predictions(self, ends: Rows, answers: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n,): the model's answers (n, 1) in the user's units."""
        windows = windows_of(self.values, ends, self.window)
        return self.scaling.predictions(windows, answers[:, 0].astype(np.float64))
