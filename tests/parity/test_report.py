"""Reports: on the terminal, as JSON and back, as a page."""

import dataclasses
import io
import json
import re
import time

import numpy as np
import pytest
from rich.console import Console

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.equality import compare_outcomes
from mamba2_bridge.parity.html import write_html
from mamba2_bridge.parity.outcome import Outcome
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.stages import Stage
from mamba2_bridge.parity.terminal import print_report

STAGES = [
    Stage("first", ("h",), ("x",), ("A",)),
    Stage("second <b>", ("out",), ("h",), ("B",)),
]
FORWARD = {"h": np.array([1.0, 2.0]), "out": np.array([[1.0, -2.0]])}
BACKWARD = {
    "h": np.array([0.5, 0.5]),
    "x": np.array([0.0, 4.0]),
    "param.A": np.ones(2),
    "param.B": np.ones(3),
}
STEPS = [{"loss": np.asarray(1.5), "param.A": np.ones(2)}, {"loss": np.asarray(0.5), "param.A": np.zeros(2)}]


def outcome(forward=FORWARD, backward=BACKWARD, steps=STEPS):
    return Outcome("side", "float64", forward, backward, steps, ("h",), STAGES)


def report_of(*outcomes):
    results = []
    for number, got in enumerate(outcomes):
        for mode in ("accumulated", "isolated"):
            results += compare_outcomes(f"case {number}", outcome(), got, mode=mode)
    cases = [f"case {number}" for number in range(len(outcomes))]
    return ParityReport("candidate", "reference", cases, results, notes={"seed": 3})


HEALTHY = outcome()
WRONG = outcome(backward={**BACKWARD, "param.B": 2 * BACKWARD["param.B"], "h": np.array([0.5, np.nan])})
MISSING = outcome(forward={"h": FORWARD["h"]})


def printed(report, width=80):
    text = io.StringIO()
    print_report(report, Console(file=text, width=width))
    return text.getvalue()


def test_a_passing_report_on_the_terminal():
    text = printed(report_of(HEALTHY))
    assert text.startswith("candidate against reference: 1 case, 20 tensors\n")
    assert "pass: all of 20 tensors are within their bounds" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_failing_report_says_where_to_look():
    text = printed(report_of(HEALTHY, WRONG))
    assert "FAIL: 4 of 40 tensors differ" in text
    assert re.search(r"look at .*second <b>", text)
    assert "FAIL case 1 in float64: grad.param.B[0]: got 2.0, want 1.0" in text
    assert "case 0 in float64: " not in text.replace("case 0 in float64: out", "")
    lines = [line for line in text.splitlines() if not line.startswith("FAIL ")]
    assert max(map(len, lines)) <= 80


def test_nothing_compared_is_said():
    assert "nothing was compared" in printed(report_of())


@pytest.mark.parametrize("outcomes", [(), (HEALTHY,), (HEALTHY, WRONG, MISSING)])
def test_a_report_comes_back_from_json_as_it_was(tmp_path, outcomes):
    report = report_of(*outcomes)
    path = tmp_path / "new" / "report.json"
    report.write(path)
    back = ParityReport.read(path)
    assert [repr(result) for result in back.results] == [repr(result) for result in report.results]
    assert (back.cases, back.passed, dict(back.notes)) == (report.cases, report.passed, report.notes)
    assert json.loads(path.read_text())["failures"] == [str(failure) for failure in report.failures]


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    path = tmp_path / "report.json"
    report_of(HEALTHY).write(path)
    content = json.loads(path.read_text())
    healthy = json.loads(path.read_text())
    content["results"][3]["bound"] = 10**400
    huge = json.dumps(content)
    content["results"][3]["bound"] = "small"
    for text, message in (
        ("{", "report.json"),
        ("[]", "report.json"),
        ('{"passed": true}', "report.json"),
        (json.dumps(content), r"results\[3\]"),
        (huge, r"bound must be a number"),
        (json.dumps({**healthy, "results": healthy["results"][:4]}), "worst are not those of its results"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            ParityReport.read(path)


def test_the_page_holds_everything_and_needs_nothing(tmp_path):
    report = report_of(HEALTHY, WRONG, MISSING)
    path = tmp_path / "new" / "report.html"
    write_html(report, path)
    page = path.read_text(encoding="utf-8")
    for name in ("grad.param.B", "grad.h", "out", "case 2"):
        assert name in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "<b>" not in page.replace("<body>", "")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><script>alert(1)</script>"
    results = [dataclasses.replace(result, case=evil, tensor=evil) for result in report_of(WRONG).results]
    write_html(ParityReport(evil, evil, [evil], results), tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_names_cannot_work_on_the_terminal():
    evil = "\x1b[2J\x1b]0;title\x07 [red]\ud800"
    results = [dataclasses.replace(result, case=evil, stage=evil) for result in report_of(WRONG).results]
    text = printed(ParityReport(evil, evil, [evil], results))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b[2J\x1b]0;title\x07 [red]\ud800" in text.replace("\n", "")


def test_a_report_prints_itself_and_is_short_in_lists():
    report = report_of(HEALTHY, WRONG)
    assert "FAIL: 4 of 40 tensors differ" in str(report)
    assert repr(report) == "<ParityReport: candidate against reference, 4 of 40 tensors differ>"


def test_many_cases_take_no_more_than_their_number():
    results = report_of(WRONG).results
    many = [
        dataclasses.replace(result, case=f"case {number}") for number in range(2000) for result in results
    ]
    report = ParityReport("candidate", "reference", [f"case {number}" for number in range(2000)], many)
    started = time.perf_counter()
    assert len(report.divergences) == 2000
    once = time.perf_counter() - started
    started = time.perf_counter()
    assert len(report.failures) == 8000
    assert once < 50 * (time.perf_counter() - started)
