"""``mamba2-bridge report``: a comparison that was written as JSON, on the terminal and as a page."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from mamba2_bridge.cli.errors import EXIT_FAILURE, EXIT_USAGE, one_line_errors
from mamba2_bridge.parity.html import write_html
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.terminal import print_forecaster, print_report


@click.command()
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="File for the report as one page.")
def report(*, results: Path, html_path: Path | None) -> None:
    """Print the report RESULTS, a JSON file of mamba2-bridge parity or compare, or of the pytest plugin.

    Exit code 0: all within tolerance. 1: a mismatch. 2: no such report.
    """
    with one_line_errors(failure=EXIT_USAGE):
        found = ParityReport.read(results)
        if html_path is not None:
            write_html(found, html_path)
        console = Console()
        print_report(found, console)
        if "forecaster" in found.notes:
            print_forecaster(found.notes["forecaster"], console)
    sys.exit(0 if found.passed else EXIT_FAILURE)
