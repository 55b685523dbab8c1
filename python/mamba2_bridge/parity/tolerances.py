"""The one table of tolerances, and the one measure that they bound.

Tests and the parity command both look bounds up here; nothing else in the project holds one.

The yardstick is always the twin's plain recurrence in fp64. What that recurrence itself loses when it is run
in fp32 is a tensor's *own loss*: a tensor that nearly cancels has a large one, and no implementation can do
better than a small multiple of it, in fp32 directly and in fp64 scaled by the ratio of the two precisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Quantity = Literal["value", "state", "grad", "loss", "optimizer step", "training"]
DType = Literal["float32", "float64"]

FP64_PER_FP32 = 2.0**-29
"""Unit roundoff of float64 over that of float32."""


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


_FP64 = (1e-13, 4 * FP64_PER_FP32)
_ROUNDING = "a few hundred roundings of 1.1e-16, which only a tensor that nearly cancels exceeds"

TOLERANCES: dict[tuple[Quantity, DType], Tolerance] = {
    ("value", "float64"): Tolerance(*_FP64, _ROUNDING),
    ("state", "float64"): Tolerance(*_FP64, _ROUNDING),
    ("grad", "float64"): Tolerance(*_FP64, _ROUNDING),
    ("loss", "float64"): Tolerance(*_FP64, _ROUNDING),
    ("value", "float32"): Tolerance(
        2e-6, 2.0, "some thirty roundings of 6e-8, or twice the recurrence's own loss"
    ),
    ("state", "float32"): Tolerance(2e-6, 2.0, "as a value: it is made by the same sums"),
    ("grad", "float32"): Tolerance(
        5e-6, 2.0, "a gradient goes through forward and backward, and sums over all tokens"
    ),
    ("loss", "float32"): Tolerance(
        5e-6, 2.0, "a square doubles a value's relative error; the sum itself is in fp64"
    ),
    ("optimizer step", "float64"): Tolerance(
        1e-11,
        0.0,
        "ten steps; Adam divides by the gradient's own size, so small gradients' errors count in full",
    ),
    ("training", "float64"): Tolerance(
        1e-9, 0.0, "twenty steps through several layers, each of which starts from the last one's rounding"
    ),
}


def tolerance(quantity: Quantity, dtype: DType) -> Tolerance:
    """Look a tolerance up; a pair that the table does not have is a KeyError, never a default."""
    try:
        return TOLERANCES[quantity, dtype]
    except KeyError:
        raise KeyError(
            f"no tolerance for {quantity!r} in {dtype!r}; the table has {list(TOLERANCES)}"
        ) from None


def quantity_of(result: str) -> Quantity:
    """Which quantity a result's name stands for: ``grad.*``, ``final*`` (a state) or else a value."""
    if result.startswith("grad."):
        return "grad"
    return "state" if result.startswith("final") else "value"


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
