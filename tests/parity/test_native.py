"""The native models through the harness: golden cases, the twin, training."""

from dataclasses import replace

import pytest

import golden_cases
from assertions import assert_close, assert_results_close
from mamba2_bridge.parity.mamba2_cases import by_token, forecaster_case, mixer_cases, noise_case
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.testing import assert_parity

DTYPES = ["float64", "float32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_native_reproduces_the_golden_case(case, dtype):
    got = golden_cases.results(NativeRunner(), case, dtype)
    assert_results_close(case.name, got, case.expected, dtype, case.own_loss)


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 1000])
@pytest.mark.parametrize("name", ["block_states_L130", "block_groups4_L65", "block_A_huge_dt_mixed"])
def test_the_chunk_size_changes_nothing(name, chunk_size):
    case = golden_cases.block(name)
    case = replace(case, config={**case.config, "chunk_size": chunk_size})
    got = golden_cases.results(NativeRunner(), case, "float64")
    assert_results_close(f"{name}, chunk_size {chunk_size}", got, case.expected, "float64", case.own_loss)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_native_steps_reproduce_the_golden_case(case, dtype):
    got = golden_cases.results(NativeRunner(), by_token(case), dtype)
    assert got.keys() == {"out", "final.conv_state", "final.ssm_state"}
    for name, value in got.items():
        quantity = "value" if name == "out" else "state"
        assert_close(f"{case}: {name}", value, case.expected[name], quantity, dtype, case.own_loss[name])


MIXERS = mixer_cases(seed=1)


@pytest.mark.torch
@pytest.mark.parametrize("kernels", ["auto", "composed"])
@pytest.mark.parametrize("case", [*MIXERS, *map(by_token, MIXERS), forecaster_case(seed=1)], ids=str)
def test_native_equals_the_twin(case, kernels):
    pytest.importorskip("torch")
    from mamba2_bridge.parity.in_torch.twin import TwinRunner

    report = assert_parity(TwinRunner(), NativeRunner(kernels), case)
    stages = {result.stage for result in report.results if result.mode == "isolated"}
    if kernels == "composed" and "no_" not in case.name:
        assert any("scan" in stage for stage in stages)


@pytest.mark.torch
def test_native_training_equals_the_twins():
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    from mamba2_bridge.parity.in_torch.twin import TwinRunner
    from mamba2_bridge.parity.training import co2_case

    for case in (noise_case(seed=1), co2_case(seed=1, steps=5)):
        report = assert_parity(TwinRunner(), NativeRunner(), case)
        steps = [result for result in report.results if result.phase == "step"]
        # the loss, each parameter and its two moments
        assert len(steps) == len(case.batches) * (1 + 3 * len(case.params))
