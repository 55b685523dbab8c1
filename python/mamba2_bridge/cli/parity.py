"""``mamba2-bridge parity``: the native model against its PyTorch twin."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mamba2_bridge._backend import check_device
from mamba2_bridge.cli.console import make_console
from mamba2_bridge.cli.errors import one_line_errors
from mamba2_bridge.cli.progress import TrainingBar
from mamba2_bridge.parity.check import check
from mamba2_bridge.parity.html import write_html
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.terminal import print_forecaster, print_report
from mamba2_bridge.parity.training import train_forecaster

if TYPE_CHECKING:
    from rich.status import Status

    from mamba2_bridge.parity.report import ParityReport


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("parity-results"),
    show_default=True,
    help="Folder for parity.html, parity.json and the trained forecaster; made where it is not there.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the cases.")
@click.option(
    "--kernels",
    type=click.Choice(["auto", "composed", "fused"]),
    default="auto",
    show_default=True,
    help="Form of the native mixer core.",
)
@click.option("--device", default="cpu", show_default=True, help="Of the native model: cpu or cuda:0.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=700,
    show_default=True,
    help="Optimizer steps, at most, of the forecaster that is trained in fp32.",
)
@click.option("--quick", is_flag=True, help="Compare only; train no forecaster afterwards.")
def parity(*, out: Path, seed: int, kernels: str, device: str, steps: int, quick: bool) -> None:
    """Compare the native model with its PyTorch twin, tensor by tensor.

    Outputs, states, what lies between and every gradient, in fp64 and fp32, for each option of the mixer,
    whole and token by token; AdamW steps in fp64 on noise and on the CO2 series of Mauna Loa, with loss, all
    parameters and moments at each step. If all of it agrees, the native model is trained on that series in
    fp32.

    Exit code 0: all within tolerance. 1: a mismatch, named with case, tensor, index and both values.
    """
    with one_line_errors():
        check_device(device)
        out.mkdir(parents=True, exist_ok=True)
        console = make_console()
        with console.status("comparing") as status:
            report = check(
                NativeRunner(kernels, device),
                TwinRunner(),
                seed=seed,
                note=lambda line: _note(line, status if console.is_terminal else None),
            )
        report = dataclasses.replace(report, notes={"seed": seed})
        _write(report, out)
        print_report(report, console)
        if report.passed and not quick:
            with TrainingBar(console) as bar:
                forecaster = train_forecaster(out, seed, steps, on_step=bar.update)
            report = dataclasses.replace(report, notes={**report.notes, "forecaster": forecaster})
            _write(report, out)
            print_forecaster(forecaster, console)
        click.echo(f"report: {out / HTML}")
    sys.exit(0 if report.passed else 1)


def _note(line: str, status: Status | None) -> None:
    """Say what comes next: in place on a terminal, else in a line of its own beside the results."""
    if status is None:
        click.echo(f"comparing: {line}", err=True)
    else:
        status.update(f"comparing: {line}")


JSON, HTML = "parity.json", "parity.html"


def _write(report: ParityReport, out: Path) -> None:
    report.write(out / JSON)
    write_html(report, out / HTML)
