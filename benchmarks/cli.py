"""The command line of the benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from benchmarks import tables
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.results import Results
from benchmarks.works import QUICK, WORKS

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
DOCS = _HERE.parent / "docs"


class _Names(click.ParamType):
    """Names separated by commas, out of those that there are."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split and check."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(","))
        for name in names:
            if name not in self.known:
                self.fail(f"{name!r} is none of {', '.join(self.known)}", param, ctx)
        return names


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time Mamba-2 on this machine's CPU against everything else that computes it."""


@main.command()
@click.option("--works", type=_Names(list(WORKS)), help="Works to do, separated by commas. Default: all.")
@click.option("--contenders", type=_Names(list(CONTENDERS)), help="Who does them. Default: all.")
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
@click.option("--quick", is_flag=True, help="A smoke test: few works, two rounds, nothing compiled.")
@click.option(
    "--name", help="Name of the results. Default: performance; quick, or partial, if not all is run."
)
def run(
    *,
    works: tuple[str, ...] | None,
    contenders: tuple[str, ...] | None,
    rounds: int,
    threads: int,
    quick: bool,
    name: str | None,
) -> None:
    """Time works, print the tables, write benchmarks/results/NAME.json.

    Exit code 1: ours failed somewhere, or a contender computed something else than ours.
    """
    from benchmarks.driver import Driver, disagreements  # noqa: PLC0415
    from benchmarks.schedule import Effort  # noqa: PLC0415

    whole = not (works or contenders or quick)
    path = RESULTS / f"{name or ('performance' if whole else 'quick' if quick else 'partial')}.json"
    effort = Effort(rounds=2, round_seconds=0.05, contender_seconds=2) if quick else Effort(rounds)
    chosen = contenders or tuple(n for n in CONTENDERS if not (quick and n.endswith("-compile")))
    console = Console()
    cores = os.cpu_count() or 1
    if threads > cores:
        raise click.UsageError(f"--threads {threads}, but there are {cores} cores")
    with console.status("starting") as status:

        def say(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                click.echo(line, err=True)

        driver = Driver(threads, effort, chosen, say)
        try:
            for work in works or (QUICK if quick else WORKS):
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


def _print(console: Console, results: Results) -> None:
    for table in tables.tables(results):
        console.print(table.rich())
    for note in tables.notes(results):
        console.print(note, soft_wrap=True, highlight=False, markup=False)


def _shown(path: Path) -> str:
    return os.path.relpath(path)
