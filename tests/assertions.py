"""Comparison of tensors in tests: bounds from the table of tolerances, messages with name and place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.parity.measures import relative_error, worst_index
from mamba2_bridge.parity.tolerances import (
    Quantity,
    quantity_of,
    tolerance,
)

if TYPE_CHECKING:
    from mamba2_bridge.parity.cases import DType


def assert_close(
    name: str, got: Any, want: Any, quantity: Quantity, dtype: DType, own_loss: float = 0.0
) -> None:
    """Assert that a tensor is within the table's bound for its quantity and dtype.

    `own_loss` is what the plain recurrence itself loses of this tensor in fp32, as the golden cases carry it.
    """
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == np.dtype(dtype), f"{name}: dtype {got.dtype}, must be {dtype}"
    assert got.shape == want.shape, f"{name}: shape {got.shape}, must be {want.shape}"
    error, bound = relative_error(got, want), tolerance(quantity, dtype).bound(own_loss)
    if not error <= bound:
        index = worst_index(got, want)
        raise AssertionError(
            f"{name}{list(index)}: got {got[index]!r}, want {want[index]!r}; "
            f"max|got - want| / max|want| = {error:.3g}, {quantity} in {dtype} allows {bound:.3g}"
        )


def assert_value(name: str, got: Any, want: Any) -> None:
    """Assert that numbers equal what a formula gives in fp64, up to rounding."""
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert_close(name, got, np.broadcast_to(want, got.shape), "value", "float64")


def assert_results_close(
    case: str,
    got: dict[str, Any],
    want: dict[str, Any],
    dtype: DType,
    own_loss: dict[str, float] | None = None,
) -> None:
    """Assert that two sets of results have the same names and every tensor is close, as `assert_close`."""
    assert set(got) == set(want), (
        f"{case}: missing {sorted(set(want) - set(got))}, unexpected {sorted(set(got) - set(want))}"
    )
    for name, value in want.items():
        assert_close(
            f"{case}: {name}", got[name], value, quantity_of(name), dtype, (own_loss or {}).get(name, 0.0)
        )


def results_close(
    got: dict[str, Any], want: dict[str, Any], dtype: DType, own_loss: dict[str, float]
) -> bool:
    """Say whether every tensor is within the bound of `assert_close`."""
    return all(
        relative_error(got[name], value) <= tolerance(quantity_of(name), dtype).bound(own_loss[name])
        for name, value in want.items()
    )
