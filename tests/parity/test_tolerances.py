"""The table of tolerances and the measure it bounds."""

import math
from typing import get_args

import numpy as np
import pytest

from mamba2_bridge.parity.tolerances import (
    TOLERANCES,
    Quantity,
    quantity_of,
    relative_error,
    tolerance,
    worst_index,
)


def test_every_bound_is_positive_and_has_a_reason():
    for key, row in TOLERANCES.items():
        assert 0 < row.flat < 1e-4, key
        assert len(row.reason) > 20, key
        assert row.bound() == row.flat, key


def test_the_table_has_the_quantities_that_the_type_names():
    assert {quantity for quantity, _ in TOLERANCES} == set(get_args(Quantity))


def test_own_loss_widens_a_bound_only_where_it_is_more():
    assert tolerance("grad", "float64").per_own_loss == 4 * 2.0**-29
    assert tolerance("grad", "float64").bound(1e-6) == tolerance("grad", "float64").flat
    assert tolerance("grad", "float64").bound(1.0) == 4 * 2.0**-29
    assert tolerance("value", "float32").bound(1e-3) == 2e-3


def test_there_is_no_default_tolerance():
    with pytest.raises(KeyError, match="no tolerance for 'training' in 'float32'"):
        tolerance("training", "float32")


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([-3.0, 0.0], [-4.0, 0.0], 0.25),
        ([], [], 0.0),
        ([0.0], [0.0], 0.0),
        ([1e-300], [0.0], math.inf),
        ([math.nan], [1.0], math.inf),
        ([1.0], [math.nan], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([math.inf, 1.0], [math.inf, 1.0], math.inf),
    ],
)
def test_relative_error(got, want, error):
    assert relative_error(np.array(got), np.array(want)) == error


def test_relative_error_does_not_broadcast():
    with pytest.raises(ValueError, match=r"shapes differ: got \(1,\), want \(2,\)"):
        relative_error(np.zeros(1), np.zeros(2))


def test_relative_error_is_not_rounded_to_float32():
    assert relative_error(np.float32([1.0]), np.array([1.0 + 1e-12])) > 0


def test_worst_index():
    want = np.zeros((2, 3))
    got = want.copy()
    got[1, 2], got[0, 1] = -2.0, 1.0
    assert worst_index(got, want) == (1, 2)
    got[0, 0] = math.nan
    assert worst_index(got, want) == (0, 0)
    assert worst_index(np.zeros(0), np.zeros(0)) == ()


def test_quantity_of():
    assert quantity_of("grad.init.ssm_state") == "grad"
    assert quantity_of("final.conv_state") == quantity_of("step.ssm_state") == quantity_of("final") == "state"
    assert quantity_of("out") == quantity_of("y") == "value"
