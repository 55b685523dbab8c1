"""``mamba2-bridge compare``: a recorded model against another, or against one of this package's."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mamba2_bridge.cli.console import make_console
from mamba2_bridge.cli.errors import EXIT_FAILURE, one_line_errors
from mamba2_bridge.cli.sides import SIDES, side
from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.artifact import compare_artifacts, compare_with_artifact, read
from mamba2_bridge.parity.html import write_html
from mamba2_bridge.parity.terminal import print_report
from mamba2_bridge.parity.tolerances import DEFAULT, Policy


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
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="File for the report as one page.")
def compare(
    *,
    reference: Path,
    candidate: str,
    policy: Path | None,
    stop_at_first: bool,
    json_path: Path | None,
    html_path: Path | None,
) -> None:
    """Compare CANDIDATE with the artifact REFERENCE, tensor by tensor, and say where it first goes wrong.

    CANDIDATE is another artifact of mamba2-bridge record, or a model that is run on the recorded case:
    native, native:fused, native:composed, twin or twin:chunked. With two artifacts neither model has to be
    there.

    Exit code 0: all within tolerance. 1: a mismatch. 2: nothing could be compared.
    """
    with one_line_errors():
        for path in (json_path, html_path):
            for artifact in (reference, Path(candidate)):
                if path is not None and path.resolve().is_relative_to(artifact.resolve()):
                    raise click.UsageError(f"{path} would be written into the artifact {artifact}")
        tolerances = DEFAULT if policy is None else Policy.read(policy).before(DEFAULT)
        recorded = read(reference)
        if candidate in SIDES:
            if "d_model" not in recorded.case.config:
                raise ConfigError(
                    f"{reference} holds {recorded.case.name!r}, which is no case of a Mamba-2: {candidate} "
                    f"can't be run on it"
                )
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
        if html_path is not None:
            write_html(report, html_path)
        console = make_console()
        for remark in report.notes.get("remarks", []):
            console.print(remark, highlight=False, markup=False, style="dim")
        print_report(report, console)
    sys.exit(0 if report.passed else EXIT_FAILURE)
