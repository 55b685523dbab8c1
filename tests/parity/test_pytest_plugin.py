"""The pytest plugin, in runs of pytest of its own."""

import json

pytest_plugins = ["pytester"]

TESTS = """
import numpy as np
import pytest
from mamba2_bridge.parity.cases import Batch, Case
from mamba2_bridge.parity.runner import Runner

CASE = Case("a line", {"w": np.array([3.0])}, [Batch({"x": np.array([1.0, 2.0])}, {"out": np.ones(2)})])

class Line(Runner):
    def __init__(self, factor=1):
        self.factor = factor
    name = "line"
    def load(self, case, dtype):
        self.w = case.params["w"].astype(dtype)
    def forward(self, batch, feed=None):
        self.batch = batch
        return {"out": self.factor * self.w * batch.inputs["x"]}
    def backward(self):
        dy = self.batch.upstream["out"]
        return {"x": self.w * dy, "param.w": np.sum(dy * self.batch.inputs["x"])[None]}

@pytest.mark.parametrize("factor", [1, 2])
def test_line(parity, factor):
    parity(Line(), Line(factor), CASE)
"""


def run(pytester, *arguments):
    pytester.makepyfile(test_line=TESTS)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_failure_names_case_tensor_index_and_values(pytester):
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*ParityError: line against line: 2 of 6 tensors differ",
            "*a line in float64: out[[]1[]]: got 12.0, want 6.0*",
        ]
    )
    result.stdout.no_fnmatch_line("*raise_for_failures*")
    assert not list(pytester.path.glob("parity-report*"))


def test_everything_that_was_compared_is_in_the_report(pytester):
    result = run(pytester, "--parity-report=json")
    result.stdout.fnmatch_lines(["12 tensors compared, 2 differ: *parity-report.json"])
    content = json.loads((pytester.path / "parity-report.json").read_text())
    assert content["passed"] is False
    assert len(content["results"]) == 12
    assert content["cases"] == [f"test_line.py::test_line[{factor}]: line: a line" for factor in (1, 2)]


def test_the_report_is_a_page_too(pytester):
    run(pytester, "--parity-report=out/page.html")
    assert "grad.param.w" in (pytester.path / "out" / "page.html").read_text()


def test_a_run_that_compares_nothing_says_so(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--parity-report=html")
    result.stdout.fnmatch_lines(["nothing was compared: *parity-report.html"])


def test_another_kind_of_report_is_refused(pytester):
    result = run(pytester, "--parity-report=report.txt")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--parity-report must be html, json or a path *, got 'report.txt'"])


def test_the_plugin_loads_nothing_heavy_until_it_is_used(pytester):
    pytester.makepyfile(
        """
        import sys
        def test_light():
            assert not {"torch", "pandas", "transformers", "jinja2"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


BROKEN = (
    TESTS.partition("@pytest.mark")[0]
    + """
from hypothesis import given, strategies as st

class Refusing(Line):
    def load(self, case, dtype):
        raise RuntimeError("no reference")

def test_fine(parity):
    parity(Line(), Line(), CASE)

def test_no_cases(parity):
    parity(Line(), Line(), [])

def test_no_reference(parity):
    parity(Refusing(), Line(), CASE)

@given(st.integers(1, 3))
def test_drawn(parity, factor):
    parity(Line(factor), Line(factor), CASE)
"""
)


def test_a_comparison_that_told_nothing_is_no_pass(pytester):
    pytester.makepyfile(test_line=BROKEN)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--parity-report=json")
    result.assert_outcomes(passed=2, failed=2)
    content = json.loads((pytester.path / "parity-report.json").read_text())
    assert content["passed"] is False
    untold = {f"test_line.py::{test}: nothing" for test in ("test_no_cases", "test_no_reference")}
    assert untold < set(content["cases"])


def test_a_report_that_cannot_be_written_is_told_after_the_failures(pytester):
    (pytester.path / "file").touch()
    result = run(pytester, "--parity-report=file/report.html")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ParityError: line against line*", "*no report was written: *"])
    assert result.ret == 1
