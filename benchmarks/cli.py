"""The command line of the benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

import mamba2_bridge as mb
from benchmarks import tables
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.devices import CPU, DEVICES
from benchmarks.results import Results
from benchmarks.works import QUICK, WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
DOCS = _HERE.parent / "docs"


def _names(known: Iterable[str]) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """Make a callback that splits an option at its commas, and refuses names that there aren't."""

    def split(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
        if value is None:
            return None
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", ctx, param)
        return names

    return split


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time Mamba-2 on this machine's CPU against everything else that computes it."""


@main.command()
@click.option("--works", callback=_names(WORKS), help="Works to do, separated by commas. Default: all.")
@click.option("--contenders", callback=_names(CONTENDERS), help="Who does them. Default: all.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Rounds of each contender that are to count; slow ones get fewer.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of every contender."
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=CPU,
    show_default=True,
    help="Where all compute. On a GPU without memory, stages, and the lengths that ours does alone.",
)
@click.option("--quick", is_flag=True, help="A smoke test: few works, two rounds, nothing compiled.")
@click.option(
    "--name", help="Name of the results. Default: performance, or cuda; quick, or partial, if not all is run."
)
def run(
    *,
    works: list[str] | None,
    contenders: list[str] | None,
    rounds: int,
    threads: int,
    device: str,
    quick: bool,
    name: str | None,
) -> None:
    """Time works, print the tables, write benchmarks/results/NAME.json.

    Exit code 1: ours failed somewhere, or a contender computed something else than ours.
    """
    from benchmarks.driver import Driver, disagreements  # noqa: PLC0415
    from benchmarks.schedule import Effort  # noqa: PLC0415

    whole = not (works or contenders or quick)
    all_of_it = "performance" if device == CPU else "cuda"
    path = RESULTS / f"{name or (all_of_it if whole else 'quick' if quick else 'partial')}.json"
    effort = Effort(rounds=2, round_seconds=0.05, contender_seconds=2) if quick else Effort(rounds)
    chosen = contenders or [name for name in CONTENDERS if not (quick and name.endswith("-compile"))]
    todo = works or (QUICK if quick else [work for work in WORKS if device == CPU or WORKS[work].contested])
    console = Console()
    cores = os.cpu_count() or 1
    if threads > cores:
        raise click.UsageError(f"--threads {threads}, but there are {cores} cores")
    _need(device)
    with console.status("starting") as status:

        def say(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                click.echo(line, err=True)

        driver = Driver(threads, device, effort, chosen, say)
        try:
            for work in todo:
                driver.do(WORKS[work])
                driver.results.write(path)
            driver.break_down(effort.rounds)
            driver.results.write(path)
        finally:
            driver.close()
    _print(console, driver.results)
    click.echo(f"written to {_shown(path)}")
    wrong = disagreements(driver.results)
    for line in wrong:
        click.echo(line, err=True)
    sys.exit(1 if wrong else 0)


@main.command()
@click.option("--name", default="performance", show_default=True, help="Name of the results.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DOCS,
    help="Folder of the document. Default: docs.",
)
def report(*, name: str, out: Path) -> None:
    """Print the tables of a run, and write performance.md and its plot."""
    from benchmarks.report import write_report  # noqa: PLC0415

    path = RESULTS / f"{name}.json"
    if not path.is_file():
        raise click.ClickException(f"there is no {_shown(path)}: python -m benchmarks run")
    results = Results.read(path)
    _print(Console(), results)
    click.echo(f"written to {_shown(write_report(results, out))}")


def _need(device: str) -> None:
    """Refuse a GPU that ours or PyTorch can't use."""
    if device == CPU:
        return
    try:
        mb.Mamba2(mb.Mamba2Config(d_model=8, d_state=4, headdim=4), device=device)
    except mb.DeviceError as error:
        raise click.ClickException(str(error)) from error
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        raise click.ClickException("PyTorch sees no GPU: its build is one for CPUs, or the driver is too old")


def _print(console: Console, results: Results) -> None:
    for table in tables.tables(results):
        console.print(table.rich())
    for note in tables.notes(results):
        console.print(note, soft_wrap=True, highlight=False, markup=False)


def _shown(path: Path) -> str:
    return os.path.relpath(path)
