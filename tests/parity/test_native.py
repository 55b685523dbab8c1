"""The native models through the harness: golden cases, the twin, training."""

from dataclasses import replace

import numpy as np
import pytest

import golden_cases
from assertions import assert_close, assert_results_close
from mamba2_bridge.parity.cases import mixer_cases
from mamba2_bridge.parity.compare import compare_case, compare_training
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.training import co2_problem, noise_problem

DTYPES = ["float64", "float32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_native_reproduces_the_golden_case(case, dtype):
    assert_results_close(case.name, NativeRunner().run(case, dtype), case.expected, dtype, case.own_loss)


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 1000])
@pytest.mark.parametrize("name", ["block_states_L130", "block_groups4_L65", "block_A_huge_dt_mixed"])
def test_the_chunk_size_changes_nothing(name, chunk_size):
    case = golden_cases.block(name)
    case = replace(case, config={**case.config, "chunk_size": chunk_size})
    got = NativeRunner().run(case, "float64")
    assert_results_close(f"{name}, chunk_size {chunk_size}", got, case.expected, "float64", case.own_loss)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_native_steps_reproduce_the_golden_case(case, dtype):
    got = NativeRunner().run_steps(case, dtype)
    for step, result in {
        "step.out": "out",
        "step.conv_state": "final.conv_state",
        "step.ssm_state": "final.ssm_state",
    }.items():
        quantity = "value" if result == "out" else "state"
        assert_close(
            f"{case}: {step}", got[step], case.expected[result], quantity, dtype, case.own_loss[result]
        )


@pytest.mark.torch
@pytest.mark.parametrize("case", mixer_cases(seed=1), ids=str)
def test_native_equals_the_twin(case):
    pytest.importorskip("torch")
    from mamba2_bridge.parity.twin import TwinRunner

    failures = [
        str(result) for result in compare_case(NativeRunner(), TwinRunner(), case) if not result.passed
    ]
    assert not failures


@pytest.mark.torch
@pytest.mark.parametrize(
    ("problem", "quantity"),
    [(noise_problem(seed=1), "optimizer step"), (co2_problem(seed=1, steps=5), "training")],
)
def test_native_training_equals_the_twins(problem, quantity):
    pytest.importorskip("torch")
    from mamba2_bridge.parity.twin import TwinRunner

    run = compare_training(NativeRunner(), TwinRunner(), problem, quantity)
    assert not [str(result) for result in run.results if not result.passed]
    assert len(run.results) == len(problem.batches) * (1 + len(problem.params))
    assert np.isfinite(run.losses[NativeRunner().name]).all()
