"""From rows to examples: the chronological split, and which windows predict which rows.

An example is named by the row its window ends at. Its target lies `horizon` rows later, and the part of
the split that holds the target's row decides what the example is for. Windows of a later part may reach
back into an earlier one: when a prediction is made, the past is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mamba2_bridge.exceptions import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mamba2_bridge.training.table import Table

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Split:
    """Where windows end, by part; all of one table, `window` and `horizon`.

    Attributes
    ----------
    window, horizon : int
        Rows of a window; rows from its last one to the target.
    train_rows : int
        Number of rows of the training part: everything fitted sees these only.
    ends : mapping of part to ndarray
        (n,) last row of each window, ascending.
    """

    window: int
    horizon: int
    train_rows: int
    ends: Mapping[Part, Rows]

    def targets(self, part: Part) -> Rows:
        """Return (n,): the row that each window of a part predicts."""
        return self.ends[part] + self.horizon


def split(table: Table, *, window: int, horizon: int, validation: float, test: float) -> Split:
    """Split a table in the order of time.

    The last ``test`` of the rows are the test part, the ``validation`` before them the validation part,
    and the rest is for training. A cell that was interpolated is never a target; and no window ends at a
    row with such a cell, as it was filled with the help of a later row.

    Raises
    ------
    DataError
        If a part has no example.
    """
    rows = len(table)
    train_rows = rows - round(rows * (validation + test))
    bounds = {
        "train": (0, train_rows),
        "validation": (train_rows, rows - round(rows * test)),
        "test": (rows - round(rows * test), rows),
    }
    usable = usable_ends(table, window=window)
    usable = usable[usable + horizon < rows]
    usable = usable[~table.filled[usable + horizon, 0]]
    ends: dict[Part, Rows] = {}
    for part in PARTS:
        first, last = bounds[part]
        ends[part] = usable[(usable + horizon >= first) & (usable + horizon < last)]
        if not len(ends[part]):
            raise DataError(
                f"{table.source} has too few rows ({rows}): no window of {window} rows has a target,"
                f" {horizon} after its last row, in the {part} part (rows {first + 1} to {last})."
                f" {_advice(part)}"
            )
    return Split(window, horizon, train_rows, ends)


def usable_ends(table: Table, *, window: int) -> Rows:
    """Return the rows at which a whole window may end: those without an interpolated cell."""
    ends = np.arange(window - 1, len(table))
    return ends[~table.filled[ends].any(axis=1)]


def windows_of(values: NDArray[np.float64], ends: Rows, window: int) -> NDArray[np.float64]:
    """Return (n, window, columns): the rows up to and including each end."""
    windows: NDArray[np.float64] = values[ends[:, None] + np.arange(1 - window, 1)]
    return windows


def _advice(part: Part) -> str:
    """Return what would help."""
    if part == "train":
        return "More rows are needed, a shorter window, or smaller shares for validation and test."
    return f"More rows are needed, or a larger share for the {part} part."
