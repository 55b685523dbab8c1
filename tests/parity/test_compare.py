"""Comparison of named tensors: what passes, what fails, and what the message says."""

import dataclasses
import inspect
import io
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from mamba2_bridge.parity.cases import Sizes, mixer_cases, parameter_shapes
from mamba2_bridge.parity.compare import compare_tensors, own_losses
from mamba2_bridge.parity.report import Report
from mamba2_bridge.parity.tolerances import tolerance

WANT = {"out": np.array([[1.0, -2.0]]), "grad.u": np.array([0.0, 4.0, 2.0])}


def compare(got, dtype="float64", own_loss=None):
    return compare_tensors("a case", got, WANT, dtype, own_loss)


def only_failure(results):
    (failure,) = [result for result in results if not result.passed]
    return failure


def test_equal_tensors_pass():
    assert all(result.passed and result.error == 0 for result in compare(dict(WANT)))


def test_a_wrong_element_is_named_with_both_values():
    got = {**WANT, "grad.u": np.array([0.0, 4.0, 2.5])}
    failure = only_failure(compare(got))
    assert str(failure) == (
        "a case in float64: grad.u[2]: got 2.5, want 2.0; relative error 0.125, 1e-13 allowed"
    )
    assert failure.max_abs == 0.5
    assert failure.badness == 0.125 / failure.bound


def test_the_bound_itself_passes_and_own_loss_widens_it():
    flat = tolerance("value", "float32").flat
    got = {name: value.astype(np.float32) for name, value in WANT.items()}
    got["out"] = np.float32([[1.0, -2.0 * (1 + 10 * flat)]])
    assert only_failure(compare(got, "float32")).tensor == "out"
    assert all(result.passed for result in compare(got, "float32", {"out": 6 * flat}))


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ({"out": WANT["out"]}, "grad.u: missing"),
        ({**WANT, "grad.z": np.zeros((2, 1))}, r"grad.z: unexpected, of shape \(2, 1\)"),
        ({**WANT, "out": np.zeros((2, 1))}, r"out: shape \(2, 1\), must be \(1, 2\)"),
        ({**WANT, "out": np.float32(WANT["out"])}, "out: dtype float32, must be float64"),
        ({**WANT, "grad.u": np.array([0.0, math.nan, 2.0])}, r"grad.u\[1\]: got nan, want 4.0"),
        ({**WANT, "grad.u": np.array([0.0, 4.0, -math.inf])}, r"grad.u\[2\]: got -inf, want 2.0"),
    ],
)
def test_every_way_of_not_being_there_is_a_failure(got, message):
    failure = only_failure(compare(got))
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(failure))
    assert failure.max_abs == math.inf


def test_a_reference_that_overflows_in_fp32_excuses_nothing():
    losses = own_losses(
        {"a": np.float32([math.inf]), "b": np.float32([1.5])}, {"a": np.ones(1), "b": np.ones(1)}
    )
    assert losses == {"a": 0.0, "b": 0.5}


def test_cases_cover_every_option():
    init_only = {"A_init_range", "conv_init", "dt_min", "dt_max", "dt_init_floor"}
    torch = pytest.importorskip("torch")
    from mamba2_bridge.torch.reference import Mamba2

    options = set(inspect.signature(Mamba2).parameters) - {"device", "dtype", "scan"} - init_only
    assert torch
    assert {name for case in mixer_cases() for name in case.config} == options
    assert any(case.state is None for case in mixer_cases())


def test_cases_are_exact_in_float32_and_set_by_the_seed():
    first, again, other = mixer_cases(0), mixer_cases(0), mixer_cases(1)
    for a, b, c in zip(first, again, other, strict=True):
        assert np.array_equal(a.u, b.u)
        assert a.u.size == 0 or not np.array_equal(a.u, c.u)
        for name, shape in parameter_shapes(a.config).items():
            value = a.params[name]
            assert value.shape == shape
            assert np.array_equal(value, value.astype(np.float32)), name
            assert len(np.unique(value)) == value.size, f"{a.name}: {name} repeats a value"


def test_sizes():
    config = {"d_model": 5, "expand": 4, "d_ssm": 12, "headdim": 3, "ngroups": 2, "d_state": 7}
    assert Sizes.of(config) == Sizes(d_inner=20, d_ssm=12, nheads=4, conv_dim=40)
    assert Sizes.of({**config, "d_ssm": None}).d_ssm == 20


def report_of(results):
    return Report("left", "right", seed=3, cases=1, results=results, trajectories=[], versions={})


def test_report_shows_the_worst_of_each_quantity():
    results = compare({**WANT, "out": WANT["out"] * (1 + 1e-14)})
    results += compare({**WANT, "out": WANT["out"] * (1 + 1e-10)})
    report = report_of(results)
    assert not report.passed
    assert [(worst.quantity, worst.passed, count) for worst, count in report.worst()] == [
        ("value", False, 2),
        ("grad", True, 2),
    ]
    text = io.StringIO()
    report.print(Console(file=text, width=100))
    text = text.getvalue()
    assert "FAIL a case in float64: out[0, 1]: got" in text
    assert "left against right in fp64: 1 cases, 4 tensors, seed 3" in text


def test_an_empty_report_is_no_pass():
    assert not report_of([]).passed


def test_report_is_written_whole(tmp_path):
    results = compare({"out": WANT["out"]})
    path = tmp_path / "new" / "parity.json"
    report_of(results).write(path)
    content = json.loads(path.read_text())
    assert content["passed"] is False
    assert content["failures"] == ["a case in float64: grad.u: missing"]
    assert [row["tensor"] for row in content["results"]] == ["out", "grad.u"]
    assert content["results"][1]["error"] == "inf"
    assert set(content["results"][0]) == {field.name for field in dataclasses.fields(results[0])} | {"passed"}
    assert [file.name for file in path.parent.iterdir()] == ["parity.json"]


@pytest.mark.parametrize("module", ["mamba2_bridge.torch.reference", "mamba2_bridge.parity.twin"])
def test_a_missing_torch_is_named_with_the_command_that_installs_it(module):
    script = f"import sys; sys.modules['torch'] = None; import mamba2_bridge.parity.compare; import {module}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert (
        f"{module.removesuffix('.reference')} needs torch: pip install 'mamba2-bridge[torch]'"
        in result.stderr
    )
