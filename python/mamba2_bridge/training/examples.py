"""What the model is given and asked for: windows of rows, scaled, in the model's dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.training.windows import Rows, windows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge.training.scaling import Scaling


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

    def predictions(self, ends: Rows, answers: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n,): the model's answers (n, 1) in the user's units."""
        windows = windows_of(self.values, ends, self.window)
        return self.scaling.predictions(windows, answers[:, 0].astype(np.float64))
