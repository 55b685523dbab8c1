"""The net holds: every planted fault is caught and found in its stage, and healthy pairs never alarm."""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

torch = pytest.importorskip("torch")

from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.mamba2_cases import by_token, forecaster_case, mixer_cases, noise_case
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.outcome import own_losses
from mamba2_bridge.parity.tolerances import quantity_of, tolerance
from mamba2_bridge.testing.faults import FAULTS, FaultyTwin
from mamba2_bridge.testing.strategies import mixer_cases as any_mixer_case

pytestmark = pytest.mark.torch
CASES = mixer_cases()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_caught_and_found(fault):
    report = compare(TwinRunner(), FaultyTwin(fault), fault.case(), dtypes=["float64"])
    assert [result.stage for result in report.divergences] == [fault.stage], report.failures[:3]


# What fp32 hides is no fault in it, and optimizer steps are compared in fp64 alone.
SHOWN_IN_FP32 = [fault for fault in FAULTS if "f32" not in fault.name and fault.stage != "optimizer"]


@pytest.mark.parametrize("fault", SHOWN_IN_FP32, ids=str)
def test_a_planted_fault_is_caught_in_fp32_too(fault):
    report = compare(TwinRunner(), FaultyTwin(fault), fault.case(), dtypes=["float32"])
    assert [result.stage for result in report.divergences] == [fault.stage], report.failures[:3]


def test_there_are_faults_of_every_stage():
    stages = Counter(fault.stage.split(".")[-1] for fault in FAULTS)
    assert {"in_proj", "conv", "dt", "scan", "norm", "out_proj", "loss", "optimizer"} <= stages.keys()
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60


def test_errors_that_pile_up_are_told_from_the_stage_that_makes_them():
    """With errors accumulated everything after the fault is red; on its own no other stage is."""
    fault = next(fault for fault in FAULTS if fault.name == "conv: taps flipped")
    report = compare(TwinRunner(), FaultyTwin(fault), fault.case(), dtypes=["float64"])
    forward = [result for result in report.failures if result.phase == "forward"]
    stages = Counter((result.mode, result.stage) for result in forward)
    piled_up = {("accumulated", stage) for stage in ("conv", "scan", "norm", "out_proj")}
    assert stages.keys() == {*piled_up, ("isolated", "conv")}


HEALTHY = [*CASES, *map(by_token, CASES), forecaster_case(), noise_case(steps=3)]


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_the_chunked_twin_never_alarms(case):
    compare(TwinRunner(), TwinRunner("chunked"), case).raise_for_failures()


healthy = settings(
    max_examples=int(os.environ.get("PARITY_EXAMPLES", "25")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["fused", "composed"])
@healthy
@given(case=any_mixer_case())
def test_a_healthy_pair_never_alarms(kernels, case):
    """PARITY_EXAMPLES asks for more than the usual examples."""
    compare(TwinRunner(), NativeRunner(kernels), case, draws=8).raise_for_failures()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_case_excuses_a_wrong_gradient(case):
    """Bounds that the recurrence's own fp32 loss widens stay small: no case nearly cancels."""
    for name, loss in own_losses(TwinRunner(), case).items():
        row = tolerance(quantity_of(name), "float32")
        assert row.bound(loss) <= 100 * row.flat, name
