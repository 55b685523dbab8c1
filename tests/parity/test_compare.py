"""Comparison of named tensors: what passes, what fails, and what the message says."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from mamba2_bridge.exceptions import ParityError
from mamba2_bridge.parity.cases import Batch, Case
from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.equality import compare_outcomes
from mamba2_bridge.parity.outcome import Outcome, own_losses
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.runner import Runner
from mamba2_bridge.parity.tolerances import DEFAULT, Policy, Tolerance, tolerance
from mamba2_bridge.testing import assert_grads_close, assert_parity

FORWARD = {"out": np.array([[1.0, -2.0]])}
BACKWARD = {"u": np.array([0.0, 4.0, 2.0])}


def outcome(forward=FORWARD, backward=BACKWARD, dtype="float64", **more):
    return Outcome("a side", dtype, forward, backward, **more)


def results(got, want=None, **options):
    return list(compare_outcomes("a case", want or outcome(), got, **options))


def only_failure(found):
    (failure,) = [result for result in found if not result.passed]
    return failure


def test_equal_tensors_pass():
    found = results(outcome())
    assert [result.tensor for result in found] == ["out", "grad.u"]
    assert all(result.passed and result.error == 0 for result in found)


def test_a_wrong_element_is_named_with_both_values():
    failure = only_failure(results(outcome(backward={"u": np.array([0.0, 4.0, 2.5])})))
    assert str(failure).startswith(
        "a case in float64: grad.u[2]: got 2.5, want 2.0; relative error 0.125, 1e-13 allowed"
    )
    assert failure.difference.max_abs == 0.5
    assert failure.badness == 0.125 / failure.bound


@pytest.mark.parametrize(
    ("factor", "hint"),
    [
        (2.0, "; 2 times what it should be"),
        (0.5, "; 0.5 times what it should be"),
        (-1.0, "; its sign is flipped"),
        (-2.0, "; its sign is flipped and 2 times"),
        (0.0, "; all of it is zero"),
    ],
)
def test_a_factor_or_a_sign_is_told(factor, hint):
    failure = only_failure(results(outcome(backward={"u": factor * BACKWARD["u"]})))
    assert str(failure).endswith(f"1e-13 allowed{hint}")


def test_the_bound_itself_passes_and_own_loss_widens_it():
    flat = tolerance("value", "float32").flat
    got = outcome(
        {"out": np.float32([[1.0, -2.0 * (1 + 10 * flat)]])}, {"u": np.float32(BACKWARD["u"])}, "float32"
    )
    assert only_failure(results(got)).tensor == "out"
    found = results(got, outcome(own_losses={"out": 6 * flat}))
    assert all(result.passed for result in found)
    assert found[0].noise == pytest.approx(10 / 6, rel=1e-2)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        ({}, "grad.u: missing"),
        ({**BACKWARD, "z": np.zeros((2, 1))}, "grad.z: unexpected, of shape (2, 1)"),
        ({"u": np.zeros((2, 1))}, "grad.u: shape (2, 1), must be (3,)"),
        ({"u": np.float32(BACKWARD["u"])}, "grad.u: dtype float32, must be float64"),
        ({"u": np.array([0.0, math.nan, 2.0])}, "grad.u[1]: got nan, want 4.0"),
        ({"u": np.array([0.0, 4.0, -math.inf])}, "grad.u[2]: got -inf, want 2.0"),
    ],
)
def test_every_way_of_not_being_there_is_a_failure(backward, message):
    failure = only_failure(results(outcome(backward=backward)))
    assert str(failure).startswith(f"a case in float64: {message}")
    assert failure.error == math.inf


def test_a_tensor_without_a_tolerance_fails_though_it_is_equal():
    policy = Policy([row for row in DEFAULT.tolerances if row.quantity != "grad"])
    failure = only_failure(results(outcome(), policy=policy))
    assert failure.error == 0.0
    assert "grad.u[0]: got 0.0, want 0.0: no tolerance is for it (grad in float64)" in str(failure)


def test_the_first_tolerance_that_fits_is_taken():
    loose = Tolerance("grad", "*", 1.0, 0.0, "a test", tensor="grad.u")
    got = outcome(backward={"u": np.array([0.0, 4.0, 2.5])})
    assert all(result.passed for result in results(got, policy=Policy([loose]).before(DEFAULT)))
    assert only_failure(results(got, policy=DEFAULT.before(Policy([loose])))).tensor == "grad.u"


def test_a_missing_step_fails():
    step = {"param.w": np.ones(2)}
    failure = only_failure(results(outcome(steps=[step]), outcome(steps=[step, step])))
    assert str(failure) == "a case in float64, step 2: every parameter: missing"
    assert failure.stage == "optimizer"


class Line(Runner):
    """y = w x, wrong in ways that tests ask for."""

    name = "line"

    def __init__(self, change=lambda arrays: arrays):
        self.change = change

    def load(self, case, dtype):
        self.w = case.params["w"].astype(dtype)

    def forward(self, batch, feed=None):
        self.batch = batch
        return self.change({"out": self.w * batch.inputs["x"]})

    def backward(self):
        dy = self.batch.upstream["out"]
        return {"x": self.w * dy, "param.w": np.sum(dy * self.batch.inputs["x"])[None]}


CASE = Case("a line", {"w": np.array([3.0])}, [Batch({"x": np.array([1.0, 2.0])}, {"out": np.ones(2)})])


def test_a_runner_of_ones_own():
    report = assert_parity(Line(), Line(), CASE)
    assert [(result.tensor, result.dtype) for result in report.results[:3]] == [
        ("out", "float64"),
        ("grad.x", "float64"),
        ("grad.param.w", "float64"),
    ]

    def in_fp64(arrays):
        return {"out": arrays["out"] + np.array([0, arrays["out"].dtype == np.float64], arrays["out"].dtype)}

    with pytest.raises(ParityError, match=r"1 of 6 tensors differ\n.*out\[1\]: got 7.0, want 6.0") as caught:
        assert_parity(Line(), Line(in_fp64), CASE)
    assert "look at out" in str(caught.value)


def test_a_candidate_that_raises_fails_the_case_and_the_others_are_run():
    def refuse(arrays):
        raise RuntimeError("no kernel")

    report = compare(Line(), Line(refuse), [CASE, replace(CASE, name="another")], dtypes=["float64"])
    where = f"(in refuse, test_compare.py line {refuse.__code__.co_firstlineno + 1})"
    assert [str(result) for result in report.results] == [
        f"a line in float64: every tensor: RuntimeError: no kernel {where}",
        f"another in float64: every tensor: RuntimeError: no kernel {where}",
    ]
    with pytest.raises(RuntimeError, match="no kernel"):
        compare(Line(refuse), Line(), CASE)


def test_stop_at_first():
    wrong = Line(lambda arrays: {"out": 2 * arrays["out"]})
    cases = [CASE, replace(CASE, name="another")]
    assert len(compare(Line(), wrong, cases).results) == 12
    report = compare(Line(), wrong, cases, stop_at_first=True)
    assert [result.tensor for result in report.results] == ["out"]
    assert report.first() is report.results[0]


def test_a_reference_that_overflows_in_fp32_excuses_nothing():
    def overflow(arrays):
        factor = 1.0 if arrays["out"].dtype == np.float64 else np.float32(np.inf)
        return {"out": arrays["out"] * factor}

    assert own_losses(Line(overflow), CASE)["out"] == 0.0


def test_nothing_compared_is_no_pass():
    report = ParityReport("a", "b", [], [])
    assert not report.passed
    with pytest.raises(ParityError, match="nothing was compared"):
        report.raise_for_failures()


def test_gradients_are_compared_by_name():
    want = {"w": np.array([1.0, 2.0]), "b": np.array([1.0])}
    assert_grads_close(dict(want), want)
    with pytest.raises(ParityError, match="nothing was compared"):
        assert_grads_close({}, {})
    with pytest.raises(ParityError) as caught:
        assert_grads_close({"w": np.array([1.0, 2.5]), "c": np.array([1.0])}, want)
    assert "3 of 3 tensors differ" in str(caught.value)
    assert "grad.w[1]: got 2.5, want 2.0" in str(caught.value)
    assert "grad.b: missing" in str(caught.value)
    assert "grad.c: unexpected, of shape (1,)" in str(caught.value)
    narrow = {name: np.float32(value * (1 + 1e-5)) for name, value in want.items()}
    assert_grads_close(narrow, want, "float32", own_losses={"w": 1e-5, "b": 1e-5})
    with pytest.raises(ParityError):
        assert_grads_close(narrow, want, "float32")


@pytest.mark.parametrize("module", ["mamba2_bridge.torch.reference", "mamba2_bridge.parity.in_torch.twin"])
def test_a_missing_torch_is_named_with_the_command_that_installs_it(module):
    script = f"import sys; sys.modules['torch'] = None; import mamba2_bridge.testing; import {module}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    package = module.rpartition(".")[0]
    assert f"{package} needs torch: pip install 'mamba2-bridge[torch]'" in result.stderr
