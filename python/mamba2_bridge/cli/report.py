"""``mamba2-bridge report``: a comparison that was written as JSON, on the terminal and as a page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mamba2_bridge.cli.console import make_console
from mamba2_bridge.cli.errors import EXIT_FAILURE, one_line_errors
from mamba2_bridge.exceptions import ConfigError
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
    with one_line_errors():
        found = ParityReport.read(results)
        if html_path is not None:
            write_html(found, html_path)
        console = make_console()
        print_report(found, console)
        if "forecaster" in found.notes:
            try:
                print_forecaster(found.notes["forecaster"], console)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ConfigError(f"{results}: notes.forecaster can't be read: {error!r}") from None
    sys.exit(0 if found.passed else EXIT_FAILURE)
