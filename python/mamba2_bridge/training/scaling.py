"""Normalisation of inputs and targets: what the model sees, and back to the user's units.

``"train"``: each column minus its mean, divided by its standard deviation, both over the training rows.
``"window"``: each column of a window minus its last value, divided by its standard deviation in that
window; the model then predicts the change from the last value. A level that never came up in training (a
trend) is no obstacle to it.

Whatever is fitted is fitted on training rows only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mamba2_bridge.exceptions import DataError

Normalise = Literal["train", "window"]
Array = NDArray[np.float64]

# a window that hardly moves is divided by this part of the column's spread in training, not by almost nothing
_SMALLEST_SPREAD = 0.01
_SMALLEST_STD = float(np.sqrt(np.finfo(np.float64).tiny))


class Scaling(Protocol):
    """Maps windows (n, window, columns) and targets (n,) to the model's units, and predictions back."""

    def inputs(self, windows: Array) -> Array:
        """Return the windows (n, window, columns) as the model sees them."""

    def targets(self, windows: Array, targets: Array) -> Array:
        """Return what the model should answer (n,)."""

    def predictions(self, windows: Array, answers: Array) -> Array:
        """Return the model's answers (n,) in the user's units: the inverse of :meth:`targets`."""

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`scaling_from_dict` reads."""


@dataclass(frozen=True)
class TrainScaling:
    """One mean and one standard deviation a column, from the training rows."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind: ClassVar[Normalise] = "train"

    def inputs(self, windows: Array) -> Array:
        """Return (windows − mean) / std."""
        scaled: Array = (windows - np.array(self.mean)) / np.array(self.std)
        return scaled

    def targets(self, windows: Array, targets: Array) -> Array:
        """Return (targets − mean) / std of the target's column."""
        del windows
        scaled: Array = (targets - self.mean[0]) / self.std[0]
        return scaled

    def predictions(self, windows: Array, answers: Array) -> Array:
        """Return answers · std + mean of the target's column."""
        del windows
        restored: Array = answers * self.std[0] + self.mean[0]
        return restored

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class WindowScaling:
    """Each window by its own last value and spread.

    `change` is the typical change from the last value to a target, in units of the spread.
    """

    smallest_spread: tuple[float, ...]
    change: float
    kind: ClassVar[Normalise] = "window"

    def inputs(self, windows: Array) -> Array:
        """Return (windows − last) / spread, both of the window itself."""
        scaled: Array = (windows - windows[:, -1:, :]) / self._spread(windows)[:, None, :]
        return scaled

    def targets(self, windows: Array, targets: Array) -> Array:
        """Return (targets − last) / (spread · change)."""
        scaled: Array = (targets - windows[:, -1, 0]) / (self._spread(windows)[:, 0] * self.change)
        return scaled

    def predictions(self, windows: Array, answers: Array) -> Array:
        """Return last + answers · spread · change."""
        restored: Array = windows[:, -1, 0] + answers * self._spread(windows)[:, 0] * self.change
        return restored

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields."""
        return {"kind": self.kind, **asdict(self)}

    def _spread(self, windows: Array) -> Array:
        spread: Array = np.maximum(windows.std(axis=1), np.array(self.smallest_spread))
        return spread


def fit_scaling(
    kind: Normalise, rows: Array, windows: Array, targets: Array, columns: tuple[str, ...]
) -> Scaling:
    """Fit a scaling on the training part.

    Parameters
    ----------
    kind : {"train", "window"}
    rows : ndarray
        (rows, columns): the training rows.
    windows, targets : ndarray
        (n, window, columns) and (n,): the training windows and their targets.
    columns : tuple of str
        Names for messages; the target first.

    Raises
    ------
    DataError
        If a column is constant over the training rows, or its numbers are too large or too small to square.
    """
    with np.errstate(all="ignore"):  # told below, by column
        std, mean = rows.std(axis=0), rows.mean(axis=0)
    for column, name in enumerate(columns):
        first = rows[0, column]
        # not std == 0: the mean of equal numbers may be off by a rounding
        if (rows[:, column] == first).all():
            raise DataError(
                f"column {name!r} is constant ({first:g}) in rows 1 to {len(rows)}, the training part:"
                " there is nothing to learn from it"
            )
        # a variance below the normal numbers has lost its digits, or is 0
        if not (np.isfinite(std[column]) and np.isfinite(mean[column]) and std[column] >= _SMALLEST_STD):
            raise DataError(
                f"column {name!r}: the standard deviation of rows 1 to {len(rows)}, the training part, comes"
                f" out as {std[column]:g}, which can't be scaled by; give it in another unit"
            )
    if kind == "train":
        return TrainScaling(tuple(mean.tolist()), tuple(std.tolist()))
    raw = WindowScaling(tuple((_SMALLEST_SPREAD * std).tolist()), 1.0)
    with np.errstate(all="ignore"):
        change = float(np.sqrt(np.mean(raw.targets(windows, targets) ** 2)))
    if not np.isfinite(change):
        raise DataError(
            f"column {columns[0]!r}: its changes, divided by its spread, are not finite; give it in another"
            " unit"
        )
    # the root mean square, so that "no change" has a loss of 1; any scale will do where nothing ever changes
    return WindowScaling(raw.smallest_spread, change or 1.0)


def scaling_from_dict(values: dict[str, Any], columns: int) -> Scaling:
    """Return the scaling of so many columns that ``to_dict`` wrote.

    Raises
    ------
    KeyError, TypeError, DataError
        If it is not one.
    """
    if values["kind"] == "train":
        mean, std = (_numbers(values[name], f"scaling.{name}", columns) for name in ("mean", "std"))
        _check_positive(std, "scaling.std")
        return TrainScaling(mean, std)
    if values["kind"] != "window":
        raise DataError(f"scaling.kind must be 'train' or 'window', got {values['kind']!r}")
    spread = _numbers(values["smallest_spread"], "scaling.smallest_spread", columns)
    change = _numbers([values["change"]], "scaling.change", 1)
    _check_positive(spread, "scaling.smallest_spread")
    _check_positive(change, "scaling.change")
    return WindowScaling(spread, change[0])


def _numbers(values: Any, name: str, count: int) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) != count:
        raise DataError(f"{name} must be a list of {count} numbers, got {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(float(value)):
            raise DataError(f"{name} must be finite numbers, got {value!r}")
    return tuple(map(float, values))


def _check_positive(values: tuple[float, ...], name: str) -> None:
    if min(values) <= 0.0:
        raise DataError(f"{name} must be above 0, got {min(values)}")
