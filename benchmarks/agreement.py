"""Whether two contenders computed the same thing: otherwise there is nothing to compare in their times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mamba2_bridge.parity.measures import relative_error

if TYPE_CHECKING:
    from benchmarks.parameters import Arrays

TOLERANCE = 1e-3
"""Bound on max|a - b| / max|b| of every output and gradient, whatever the dtype.

Loose on purpose: contenders add up in their own order and, transformers in its scan, in fp32 in fp64 works,
too, which costs 1e-5 at most in what is timed here; another function, or a gradient that is left out, is off
by 1e-1 and more. How exact ours is, the tests and the parity command say."""


def worst_error(got: Arrays, want: Arrays) -> tuple[str, float]:
    """Give the array that differs most, and its relative error; infinite for one that is missing."""
    missing = sorted(want.keys() ^ got.keys())
    if missing:
        return missing[0], float("inf")
    errors = {name: relative_error(got[name], value) for name, value in want.items()}
    worst = max(errors, key=lambda name: errors[name])
    return worst, errors[worst]
