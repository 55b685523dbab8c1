"""Tables of a run's results: made once, shown in the terminal and in the documentation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as RichTable

from benchmarks.contenders.registry import CONTENDERS, OURS
from benchmarks.limit import limit_seconds, share_of_limit
from benchmarks.stages import bound_seconds
from benchmarks.targets import checks, ratio
from benchmarks.works import LENGTHS, LONG_LENGTHS, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.results import Results

ABSENT = "-"


@dataclass
class Table:
    """Rows of text under headings.

    Attributes
    ----------
    title
        What it shows.
    headings
        Of the columns. The first ones are names, and stand left.
    names
        How many columns those are.
    rows
        As many texts each as there are headings.
    """

    title: str
    headings: Sequence[str]
    names: int = 1
    rows: list[list[str]] = field(default_factory=list)

    def markdown(self) -> str:
        """Give it as Markdown, without the title."""
        rule = ["---" if column < self.names else "---:" for column in range(len(self.headings))]
        return "\n".join(f"| {' | '.join(row)} |" for row in [self.headings, rule, *self.rows])

    def rich(self) -> RichTable:
        """Give it for the terminal."""
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if column < self.names else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def tables(results: Results) -> list[Table]:
    """Give every table that has rows, in the order in which they are read."""
    made = [times(results), targets(results), memory(results), growth(results), breakdown(results)]
    return [table for table in made if table.rows]


def times(results: Results) -> Table:
    """Give times of the contested works: the limit, ours, and each contender's with ours over it."""
    others = [name for name in _present(results) if name != OURS]
    headings = ["work", "limit", "ours", "of the limit", *(CONTENDERS[name].title for name in others)]
    table = Table("milliseconds, and ours over theirs", headings)
    for done in results.works:
        work = WORKS[done.work]
        if not work.contested:
            continue
        table.rows.append(
            [
                work.title,
                milliseconds(limit_seconds(results, work.name)),
                milliseconds(results.seconds(work.name, OURS)),
                _number(share_of_limit(results, work.name, OURS), ".2f"),
                *(_against(results, work.name, name) for name in others),
            ]
        )
    return table


def targets(results: Results) -> Table:
    """Give every target, what was measured, and whether it holds."""
    table = Table("targets", ["what", "target", "measured", ""])
    verdicts = {True: "pass", False: "FAIL", None: "not measured"}
    for check in checks(results):
        sign = "≥" if check.at_least else "≤"
        form = ".2f" if check.target < 10 else ".0f"
        target = f"{sign} {check.target:{form}}"
        table.rows.append([check.title, target, _number(check.measured, form), verdicts[check.passed]])
    return table


def memory(results: Results) -> Table:
    """Give peak memory of every work."""
    present = _present(results)
    table = Table("growth of peak memory, MiB", ["work", *(CONTENDERS[name].title for name in present)])
    for done in results.works:
        measured = [done.measurements.get(name) for name in present]
        table.rows.append(
            [
                WORKS[done.work].title,
                *(_mebibytes(None if one is None else one.memory) for one in measured),
            ]
        )
    return table


def growth(results: Results) -> Table:
    """Give time per token as sequences grow."""
    present = _present(results)
    headings = ["", "tokens", *(CONTENDERS[name].title for name in present)]
    table = Table("microseconds per token of a block", headings)
    for mode in ("forward", "forward+backward"):
        for length in (*LENGTHS, *LONG_LENGTHS):
            seconds = [results.seconds(f"{mode}-{length}", name) for name in present]
            if any(one is not None for one in seconds):
                per_token = [None if one is None else one / length * 1e6 for one in seconds]
                title = mode.replace("+", " + ")
                table.rows.append([title, str(length), *(_number(one, ".1f") for one in per_token)])
    return table


def breakdown(results: Results) -> Table:
    """Give our stages, each against its own bound."""
    table = Table("stages of ours, milliseconds", ["work", "stage", "ours", "bound", "of the bound"], names=2)
    for stage in results.stages:
        bound = bound_seconds(stage, WORKS[stage.work].tokens, results.peak)
        share = None if bound is None else bound / stage.seconds
        numbers = [milliseconds(stage.seconds), milliseconds(bound), _number(share, ".2f")]
        table.rows.append([WORKS[stage.work].title, stage.stage, *numbers])
    return table


def notes(results: Results) -> list[str]:
    """Say in a line each why a time is absent, and which were taken on a machine that was never quiet."""
    lines: dict[str, list[str]] = {}
    for done in results.works:
        title = WORKS[done.work].title
        for name, measured in done.measurements.items():
            contender = CONTENDERS[name].title
            if measured.note is not None:
                lines.setdefault(f"{contender}: {measured.note}", []).append(title)
            elif measured.timing is not None and not measured.timing.quiet:
                lines.setdefault("others took the cores in every round", []).append(f"{title} ({contender})")
    return [f"{note}: {'; '.join(works)}" for note, works in lines.items()]


def milliseconds(seconds: float | None) -> str:
    """Give milliseconds in three digits, or a dash."""
    if seconds is None:
        return ABSENT
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _present(results: Results) -> list[str]:
    """Name those that took part, in the order of the registry."""
    took_part = set(_flatten(done.measurements for done in results.works))
    return [name for name in CONTENDERS if name in took_part]


def _flatten(names: Iterable[Iterable[str]]) -> Iterable[str]:
    return (name for group in names for name in group)


def _against(results: Results, work: str, contender: str) -> str:
    over = ratio(results, work, contender)
    theirs = milliseconds(results.seconds(work, contender))
    return theirs if over is None else f"{theirs} ({over:.2f})"


def _number(value: float | None, form: str) -> str:
    return ABSENT if value is None else format(value, form)


def _mebibytes(count: int | None) -> str:
    return ABSENT if count is None else f"{count / 2**20:.0f}"
