"""How two tensors differ, measured in every way that tells kinds of faults apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mamba2_bridge.parity.cases import Array


@dataclass(frozen=True)
class Difference:
    """How ``got`` differs from ``want``.

    Attributes
    ----------
    relative
        max|got - want| / max|want|, what tolerances bound: see `relative_error`.
    max_abs
        max|got - want|; infinite where a value isn't finite.
    index, got, want
        The element that differs most; the first that isn't finite, where there is one.
    rms
        Root mean square of got - want over that of want.
    cosine
        Of the angle between the two; NaN where one is all zero.
    norm_ratio
        |got| / |want|: 2 or 0.5 tells of a lost or doubled factor.
    sign_agreement
        Share of elements whose signs agree, among those that are not zero in both.
    ulp
        The largest distance in units of the last place of ``want``'s element, in got's dtype.
    mismatches
        Share of elements that are off by more than the bound times max|want|.
    nonfinite
        How many elements of got and of want are NaN or infinite.
    """

    relative: float
    max_abs: float
    index: tuple[int, ...]
    got: float
    want: float
    rms: float
    cosine: float
    norm_ratio: float
    sign_agreement: float
    ulp: float
    mismatches: float
    nonfinite: tuple[int, int]


EQUAL = Difference(0.0, 0.0, (), math.nan, math.nan, 0.0, math.nan, math.nan, 1.0, 0.0, 0.0, (0, 0))
"""Of tensors without elements."""


def difference(got: Array, want: Array, bound: float) -> Difference:
    """Measure how ``got`` differs from ``want``, of the same shape.

    Parameters
    ----------
    got, want
        Of any floating point dtype; computed in fp64.
    bound
        On `Difference.relative`, for `Difference.mismatches`.

    Raises
    ------
    ValueError
        Shapes that differ: there is no broadcasting here.
    """
    relative = relative_error(got, want)
    if want.size == 0:
        return EQUAL
    dtype = got.dtype
    # In one order, so that no figure depends on how an array lies in memory.
    got, want = got.astype(np.float64, order="C"), want.astype(np.float64, order="C")
    finite = np.isfinite(got) & np.isfinite(want)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(got - want)
        scale = float(np.abs(want).max(where=finite, initial=0.0))
        wrong = ~finite | (distance > bound * scale)
        norms = float(np.linalg.norm(got)), float(np.linalg.norm(want))
        dot = float(np.vdot(got, want))
        spacing = np.spacing(np.abs(want).astype(dtype)).astype(np.float64)
        nonzero = finite & ((got != 0) | (want != 0))
        agree = np.sign(got) == np.sign(want)
        ulp = float((distance / spacing).max()) if finite.all() else math.inf
    index = worst_index(got, want)
    at = float(got[index]), float(want[index])
    return Difference(
        relative=relative,
        max_abs=float(distance.max()) if finite.all() else math.inf,
        index=index,
        got=at[0],
        want=at[1],
        rms=_ratio(float(np.sqrt(np.mean(distance**2))), norms[1] / math.sqrt(want.size)),
        cosine=dot / (norms[0] * norms[1]) if 0 < norms[0] * norms[1] < math.inf else math.nan,
        norm_ratio=_ratio(*norms),
        sign_agreement=float(agree[nonzero].mean()) if nonzero.any() else 1.0,
        ulp=ulp,
        mismatches=float(wrong.mean()),
        nonfinite=(int((~np.isfinite(got)).sum()), int((~np.isfinite(want)).sum())),
    )


def relative_error(got: Array, want: Array) -> float:
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
        return math.inf
    error = float(np.abs(got - want).max())
    return _ratio(error, float(np.abs(want).max()))


def worst_index(got: Array, want: Array) -> tuple[int, ...]:
    """Index of the element that differs most; of the first that is not finite, where there is one."""
    if want.size == 0:
        return ()
    finite = np.isfinite(got) & np.isfinite(want)
    distance: Any
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64)) if finite.all() else ~finite
    return tuple(int(i) for i in np.unravel_index(int(distance.argmax()), want.shape))


def _ratio(a: float, b: float) -> float:
    if a == 0.0:
        return 0.0
    return a / b if b > 0.0 else math.inf
