"""``mamba2-bridge doctor``: what this installation is made of, and whether it computes the right thing."""

from __future__ import annotations

import sys

import click

from mamba2_bridge.cli.errors import one_line_errors
from mamba2_bridge.parity.doctor import examine


@click.command()
def doctor() -> None:
    """Tell versions and machine, and compare native models with the installed torch and transformers.

    The text is made to be pasted into a bug report; its last line is a checksum of the others.

    Exit code 0: all that could be compared agrees. 1: something differs.
    """
    with one_line_errors():
        examination = examine(note=lambda line: click.echo(f"comparing {line}", err=True))
        click.echo(str(examination))
    sys.exit(0 if examination.passed else 1)
