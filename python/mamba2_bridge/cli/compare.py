"""``mamba2-bridge compare``: a recorded model against another, or against one of this package's."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from mamba2_bridge.cli.errors import EXIT_FAILURE, EXIT_USAGE, one_line_errors
from mamba2_bridge.cli.sides import SIDES, side
from mamba2_bridge.parity.artifact import compare_artifacts, compare_with_artifact, read
from mamba2_bridge.parity.tolerances import DEFAULT, Policy

if TYPE_CHECKING:
    from mamba2_bridge.parity.report import ParityReport

_TERMINAL = "mamba2_bridge.parity.terminal"


@click.command()
@click.argument("reference", type=click.Path(path_type=Path))
@click.argument("candidate")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="JSON file of tolerances that come before the project's own.",
)
@click.option("--stop-at-first", is_flag=True, help="End at the first tensor that fails.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="File for every result, as JSON.")
def compare(
    *, reference: Path, candidate: str, policy: Path | None, stop_at_first: bool, json_path: Path | None
) -> None:
    """Compare CANDIDATE with the artifact REFERENCE, tensor by tensor, and say where it first goes wrong.

    CANDIDATE is another artifact of mamba2-bridge record, or a model that is run on the recorded case:
    native, native:fused, native:composed, twin or twin:chunked. With two artifacts neither model has to be
    there.

    Exit code 0: all within tolerance. 1: a mismatch. 2: nothing could be compared.
    """
    with one_line_errors(failure=EXIT_USAGE):
        tolerances = DEFAULT if policy is None else Policy.read(policy).before(DEFAULT)
        recorded = read(reference)
        if candidate in SIDES:
            report = compare_with_artifact(
                recorded, side(candidate), policy=tolerances, stop_at_first=stop_at_first
            )
        elif not Path(candidate).exists():
            raise click.UsageError(
                f"CANDIDATE must be an artifact or one of {', '.join(SIDES)}, got {candidate}"
            )
        else:
            report = compare_artifacts(
                recorded, read(candidate), policy=tolerances, stop_at_first=stop_at_first
            )
        if json_path is not None:
            report.write(json_path)
        show(report, Console())
    sys.exit(0 if report.passed else EXIT_FAILURE)


def show(report: ParityReport, console: Console) -> None:
    """Print a report, in full where the terminal's form of it is there, else a line for each divergence."""
    for remark in report.notes.get("remarks", []):
        console.print(remark, highlight=False, markup=False, style="dim")
    try:
        terminal = import_module(_TERMINAL)
    except ModuleNotFoundError as error:
        if error.name != _TERMINAL:
            raise
        for result in report.divergences:
            console.print(f"FAIL {result}; look at {result.stage}", highlight=False, markup=False)
        verdict = "passed" if report.passed else f"{len(report.failures)} failed"
        line = f"{report.candidate} against {report.reference}: {len(report.results)} tensors, {verdict}"
        console.print(line, highlight=False, markup=False)
    else:
        terminal.print_report(report, console)
