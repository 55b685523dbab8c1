"""The twin reproduces the golden cases: outputs, states, every gradient; both dtypes, both scans."""

from dataclasses import replace

import numpy as np
import pytest

import golden_cases
from assertions import assert_close, assert_results_close

pytest.importorskip("torch")
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from twin import run_ssd

pytestmark = pytest.mark.torch
DTYPES = ["float64", "float32"]


def test_no_golden_case_is_left_out():
    assert len(golden_cases.blocks()) == 38
    assert len(golden_cases.blocks(masked=True)) == 44
    assert len(golden_cases.ssds()) == 9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scan", ["recurrence", "chunked"])
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_block(case, scan, dtype):
    case = replace(case, config={**case.config, "chunk_size": 16})  # several chunks, the last one short
    got = golden_cases.results(TwinRunner(scan), case, dtype)
    assert_results_close(case.name, got, case.expected, dtype, case.own_loss)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk_size", [None, 1, 7, 64, 256])
@pytest.mark.parametrize("case", golden_cases.ssds(), ids=str)
def test_scan(case, chunk_size, dtype):
    got = run_ssd(case, dtype, chunk_size)
    assert_results_close(case.name, got, case.expected, dtype, case.own_loss)


def test_a_wrong_gradient_is_reported_by_name_and_place():
    case = golden_cases.block("block_groups2_L17")
    got = golden_cases.results(TwinRunner(), case, "float64")
    got["grad.param.A_log"] = got["grad.param.A_log"] * np.array([1, 1, 1 + 1e-6, 1])
    with pytest.raises(
        AssertionError, match=r"block_groups2_L17: grad.param.A_log\[2\]: got .*, want .* allows 1e-13"
    ):
        assert_results_close(case.name, got, case.expected, "float64", case.own_loss)


def test_a_missing_result_is_an_error():
    case = golden_cases.block("block_plain_L4")
    got = golden_cases.results(TwinRunner(), case, "float64")
    del got["grad.param.D"]
    with pytest.raises(AssertionError, match=r"missing \['grad.param.D'\]"):
        assert_results_close(case.name, got, case.expected, "float64", case.own_loss)


def test_a_float32_result_does_not_pass_as_float64():
    with pytest.raises(AssertionError, match="dtype float32, must be float64"):
        assert_close("y", np.zeros(2, np.float32), np.zeros(2), "value", "float64")
