"""The table of tolerances, and policies that users write."""

import json
from typing import get_args

import pytest

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.tolerances import DEFAULT, Policy, Quantity, Tolerance, quantity_of, tolerance


def test_every_bound_is_positive_and_has_a_reason():
    for row in DEFAULT.tolerances:
        assert 0 < row.flat < 1e-4, row
        assert len(row.reason) > 20, row
        assert row.bound() == row.flat, row


def test_the_table_has_the_quantities_that_the_type_names():
    assert {row.quantity for row in DEFAULT.tolerances} == set(get_args(Quantity))
    assert len({(row.quantity, row.dtype) for row in DEFAULT.tolerances}) == len(DEFAULT.tolerances)


def test_own_loss_widens_a_bound_only_where_it_is_more():
    assert tolerance("grad", "float64").per_own_loss == 4 * 2.0**-29
    assert tolerance("grad", "float64").bound(1e-6) == tolerance("grad", "float64").flat
    assert tolerance("grad", "float64").bound(1.0) == 4 * 2.0**-29
    assert tolerance("value", "float32").bound(1e-3) == 2e-3


def test_there_is_no_default_tolerance():
    with pytest.raises(KeyError, match="no tolerance for 'optimizer step' in 'float32'"):
        tolerance("optimizer step", "float32")


def test_quantity_of():
    assert quantity_of("grad.init.ssm_state") == "grad"
    assert quantity_of("final.conv_state") == quantity_of("final") == "state"
    assert quantity_of("out") == quantity_of("y") == "value"
    assert quantity_of("loss") == "loss"


ROW = {
    "tensor": "grad.param.*",
    "quantity": "grad",
    "dtype": "*",
    "flat": 1e-3,
    "per_own_loss": 0,
    "reason": "a test",
}


def test_a_policy_is_read_from_a_file(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps([ROW]))
    policy = Policy.read(path)
    assert policy.find("grad.param.w", "grad", "float32").flat == 1e-3
    assert policy.find("grad.u", "grad", "float32") is None
    assert policy.before(DEFAULT).find("grad.u", "grad", "float32").flat == 5e-6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON"),
        ("{}", "must be a list of tolerances, got dict"),
        ("[1]", "tolerance 0: must be an object, got 1"),
        ([{**ROW, "bound": 1}], "tolerance 0: unknown bound; there are dtype, flat, "),
        ([ROW, {"flat": 1.0}], "tolerance 1: dtype, per_own_loss, quantity, reason missing"),
        ([{**ROW, "dtype": "float16"}], "dtype must be one of *, float32, float64, got 'float16'"),
        ([{**ROW, "quantity": "gradient"}], "got 'gradient'"),
        ([{**ROW, "flat": -1}], "flat must be a finite number, at least 0, got -1"),
        ([{**ROW, "flat": True}], "flat must be a finite number, at least 0, got True"),
        ([{**ROW, "reason": " "}], "reason must be a text that is not empty"),
    ],
)
def test_a_wrong_policy_is_refused(tmp_path, content, message):
    path = tmp_path / "policy.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        Policy.read(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_tolerance_of_a_misspelt_quantity_is_refused():
    with pytest.raises(ConfigError, match=r"quantity must be one of .*, got 'gard'"):
        Tolerance("gard", "float32", 1e-3, 0.0, "a test")
