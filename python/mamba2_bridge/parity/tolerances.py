"""The one table of tolerances, ``tolerances.json``, and the one measure that they bound.

Tests in Python and Rust and the parity command all look bounds up in that table; nothing else in the project
holds one.

The yardstick is always the twin's plain recurrence in fp64. What that recurrence itself loses when it is run
in fp32 is a tensor's *own loss*: a tensor that nearly cancels has a large one, and no implementation can do
better than a small multiple of it: twice it in fp32, four times it in fp64 after scaling by the ratio of the
two precisions, 2**-29.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Quantity = Literal[
    "value",
    "state",
    "grad",
    "loss",
    "optimizer step",
    "training",
    "finite difference",
    "forecast",
]
DType = Literal["float32", "float64"]


@dataclass(frozen=True)
class Tolerance:
    """A bound on `relative_error`.

    Attributes
    ----------
    flat
        The bound for a tensor that does not cancel.
    per_own_loss
        Allowed multiple of the tensor's own loss, where that is more.
    reason
        Why the bound is what it is.
    """

    flat: float
    per_own_loss: float
    reason: str

    def bound(self, own_loss: float = 0.0) -> float:
        """Bound for a tensor that the plain recurrence in fp32 gets wrong by ``own_loss``."""
        return max(self.flat, self.per_own_loss * own_loss)


def _read_table() -> dict[tuple[str, str], Tolerance]:
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {
        (quantity, dtype): Tolerance(**row) for quantity, rows in table.items() for dtype, row in rows.items()
    }


TOLERANCES = _read_table()


def tolerance(quantity: Quantity, dtype: DType) -> Tolerance:
    """Look a tolerance up; a pair that the table does not have is a KeyError, never a default."""
    try:
        return TOLERANCES[quantity, dtype]
    except KeyError:
        raise KeyError(
            f"no tolerance for {quantity!r} in {dtype!r}; the table has {list(TOLERANCES)}"
        ) from None


def quantity_of(result: str) -> Quantity:
    """Tell which quantity a result's name stands for: a gradient, a final state, or else a value."""
    if result.startswith("grad."):
        return "grad"
    return "state" if result == "final" or result.endswith("_state") else "value"


def relative_error(got: NDArray[Any], want: NDArray[Any]) -> float:
    """``max|got - want| / max|want|`` over a tensor, in fp64.

    0 for equal tensors, empty and all-zero ones among them; infinite where ``want`` is all zero and ``got``
    is not, and where either holds a NaN or an infinity: neither belongs in a comparison of numbers.

    Raises
    ------
    ValueError
        Shapes that differ: there is no broadcasting here.
    """
    if got.shape != want.shape:
        raise ValueError(f"shapes differ: got {got.shape}, want {want.shape}")
    if want.size == 0:
        return 0.0
    got, want = got.astype(np.float64), want.astype(np.float64)
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        return np.inf
    error = float(np.abs(got - want).max())
    scale = float(np.abs(want).max())
    if error == 0.0:
        return 0.0
    return error / scale if scale > 0.0 else np.inf


def worst_index(got: NDArray[Any], want: NDArray[Any]) -> tuple[int, ...]:
    """Index of the element that differs most; of the first that is not finite, where there is one."""
    if want.size == 0:
        return ()
    finite = np.isfinite(got) & np.isfinite(want)
    if finite.all():
        distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    else:
        distance = (~finite).astype(np.float64)
    return tuple(int(i) for i in np.unravel_index(int(distance.argmax()), want.shape))
