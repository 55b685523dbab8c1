"""How tensors differ, in every measure."""

import math

import numpy as np
import pytest

from mamba2_bridge.parity.measures import difference, relative_error, worst_index


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


def test_every_measure_of_a_difference():
    want = np.array([4.0, -2.0, 0.0, 1.0])
    got = np.array([4.0, -2.0, 0.5, -1.0])
    found = difference(got, want, bound=0.2)
    assert found.relative == 0.5
    assert (found.max_abs, found.index, found.got, found.want) == (2.0, (3,), -1.0, 1.0)
    assert found.rms == pytest.approx(math.sqrt(4.25 / 21))
    assert found.cosine == pytest.approx(19 / math.sqrt(21 * 21.25))
    assert found.norm_ratio == pytest.approx(math.sqrt(21.25 / 21))
    assert found.sign_agreement == 0.5
    assert found.mismatches == 0.25
    assert found.nonfinite == (0, 0)


def test_units_of_the_last_place_are_those_of_the_dtype():
    want = np.array([1.0, 2.0])
    for dtype in (np.float32, np.float64):
        got = want.astype(dtype)
        got[1] = np.nextafter(got[1], dtype(3))
        assert difference(got, want, 1e-13).ulp == 1.0


def test_nan_and_infinity_are_counted():
    found = difference(np.array([math.nan, 1.0, math.inf]), np.array([1.0, math.inf, 1.0]), 1e-13)
    assert found.nonfinite == (2, 1)
    assert found.index == (0,)
    assert found.mismatches == 1.0
    assert (found.relative, found.max_abs, found.ulp) == (math.inf, math.inf, math.inf)


def test_tensors_without_elements_and_all_zero_ones():
    empty = difference(np.zeros((0, 3)), np.zeros((0, 3)), 1e-13)
    assert (empty.relative, empty.max_abs, empty.index) == (0.0, 0.0, ())
    zero = difference(np.zeros(3), np.zeros(3), 1e-13)
    assert (zero.relative, zero.rms, zero.norm_ratio, zero.sign_agreement) == (0.0, 0.0, 0.0, 1.0)
    assert math.isnan(zero.cosine)
