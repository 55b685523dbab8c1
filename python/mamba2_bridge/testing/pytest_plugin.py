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

    def __init__(self, stash: pytest.Stash) -> None:
        self._stash = stash

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

        kept = self._stash[_REPORTS]
        kept.append((self._stash[_TEST], None))  # what is left where the comparison itself raises
        report = compare(reference, candidate, cases, **options)
        kept[-1] = (self._stash[_TEST], report)
        report.raise_for_failures()
        return report


@pytest.fixture(scope="session")
def parity(request: pytest.FixtureRequest) -> Parity:
    """Compare two runners, and keep what was found for ``--parity-report``.

    It is one for all tests and has nothing of any of them, so it goes with ``hypothesis.given``.
    """
    return Parity(request.config.stash)


_REPORTS = pytest.StashKey[list[tuple[str, Any]]]()
_NOT_WRITTEN = pytest.StashKey[str]()
_TEST = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note which test runs."""
    item.config.stash[_TEST] = item.nodeid


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
    config.stash[_REPORTS] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report."""
    config = session.config
    path = _path(config)
    if path is None or hasattr(config, "workerinput"):
        return
    report = _together(config.stash[_REPORTS])
    try:
        if path.suffix == ".json":
            report.write(path)
        else:
            from mamba2_bridge.parity.html import write_html  # noqa: PLC0415

            write_html(report, path)
    except OSError as error:
        config.stash[_NOT_WRITTEN] = str(error)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the report is."""
    path, reports = _path(config), config.stash[_REPORTS]
    if path is None:
        return
    terminalreporter.section("parity")
    tensors = sum(len(report.results) for _, report in reports if report is not None)
    wrong = sum(len(report.failures) for _, report in reports if report is not None)
    told = f"{tensors} tensors compared, {wrong} differ" if reports else "nothing was compared"
    if _NOT_WRITTEN in config.stash:
        terminalreporter.line(f"{told}; no report was written: {config.stash[_NOT_WRITTEN]}")
    else:
        terminalreporter.line(f"{told}: {path}")


def _path(config: pytest.Config) -> Path | None:
    value: str | None = config.getoption(_OPTION)
    if value is None:
        return None
    path = Path(f"parity-report.{value}" if value in ("html", "json") else value)
    if path.suffix not in (".html", ".json"):
        raise pytest.UsageError(f"{_OPTION} must be html, json or a path that ends so, got {value!r}")
    return config.invocation_params.dir / path


def _together(reports: list[tuple[str, ParityReport | None]]) -> ParityReport:
    """Make one report of all, in which cases have their tests' names."""
    from dataclasses import replace  # noqa: PLC0415

    from mamba2_bridge.parity.report import ParityReport  # noqa: PLC0415

    results, cases = [], []
    made = [report for _, report in reports if report is not None]
    for test, report in reports:
        if report is None or not report.results:
            cases.append(f"{test}: nothing")  # a case without results is no pass
            continue
        title = f"{test}: {report.candidate}"
        cases += [f"{title}: {case}" for case in report.cases]
        results += [replace(result, case=f"{title}: {result.case}") for result in report.results]
    candidate, reference = (
        ", ".join(dict.fromkeys(getattr(report, side) for report in made))
        for side in ("candidate", "reference")
    )
    return ParityReport(candidate, reference, cases, results)
