"""The pytest plugin: a fixture that compares, and a report of everything that was compared.

It is loaded in every run of pytest where this package is installed, so it imports neither torch nor anything
else but the package's own models and comparison until it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.runner import Runner

_OPTION = "--parity-report"


class Parity:
    """What the fixture ``parity`` gives: call it to compare two runners, as `assert_parity`."""

    def __init__(self, test: str, reports: list[tuple[str, ParityReport]]) -> None:
        self._test, self._reports = test, reports

    def __call__(
        self, reference: Runner, candidate: Runner, cases: Case | Iterable[Case], **options: Any
    ) -> ParityReport:
        """Assert that two runners are one function with one set of gradients; see `assert_parity`.

        Raises
        ------
        ParityError
            Naming case, first wrong tensor, index and both values.
        """
        __tracebackhide__ = True
        from mamba2_bridge.parity.compare import compare  # noqa: PLC0415

        report = compare(reference, candidate, cases, **options)
        self._reports.append((self._test, report))
        report.raise_for_failures()
        return report


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Compare two runners, and keep what was found for ``--parity-report``."""
    reports = request.config.stash.setdefault(_REPORTS, [])
    return Parity(request.node.nodeid, reports)


_REPORTS = pytest.StashKey[list[tuple[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--parity-report``."""
    parser.getgroup("parity").addoption(
        _OPTION,
        metavar="html|json|PATH",
        help="write what the fixture `parity` compared: to parity-report.html or .json, or to such a path",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a report of another kind before any test runs."""
    _path(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report."""
    config = session.config
    path, reports = _path(config), config.stash.get(_REPORTS, [])
    if path is None or not reports or hasattr(config, "workerinput"):
        return
    report = _together(reports)
    if path.suffix == ".json":
        report.write(path)
    else:
        from mamba2_bridge.parity.html import write_html  # noqa: PLC0415

        write_html(report, path)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the report is."""
    path, reports = _path(config), config.stash.get(_REPORTS, [])
    if path is None:
        return
    terminalreporter.section("parity")
    if reports:
        tensors = sum(len(report.results) for _, report in reports)
        wrong = sum(len(report.failures) for _, report in reports)
        terminalreporter.line(f"{tensors} tensors compared, {wrong} differ: {path}")
    else:
        terminalreporter.line("nothing was compared, no report")


def _path(config: pytest.Config) -> Path | None:
    value: str | None = config.getoption(_OPTION)
    if value is None:
        return None
    path = Path(f"parity-report.{value}" if value in ("html", "json") else value)
    if path.suffix not in (".html", ".json"):
        raise pytest.UsageError(f"{_OPTION} must be html, json or a path that ends so, got {value!r}")
    return config.invocation_params.dir / path


def _together(reports: list[tuple[str, ParityReport]]) -> ParityReport:
    """Make one report of all; cases get their tests' names where one name was used twice."""
    from dataclasses import replace  # noqa: PLC0415

    from mamba2_bridge.parity.report import ParityReport  # noqa: PLC0415

    results, cases = [], []
    for test, report in reports:
        title = f"{test}: {report.candidate}"
        cases += [f"{title}: {case}" for case in report.cases]
        results += [replace(result, case=f"{title}: {result.case}") for result in report.results]
    candidate, reference = (
        ", ".join(dict.fromkeys(getattr(report, side) for _, report in reports))
        for side in ("candidate", "reference")
    )
    return ParityReport(candidate, reference, cases, results)
