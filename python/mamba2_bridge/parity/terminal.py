"""A report on the terminal: the worst of each quantity, where it diverges, failures, losses, the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from mamba2_bridge.parity.overview import figure, losses, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    from mamba2_bridge.parity.overview import Cell, Losses, Row, Run
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.result import Phase, TensorResult

SHOWN_FAILURES = 20
"""Lines of failures; the JSON has all."""

OPENED_CASES = 5
"""Cases whose stages are shown; of further ones a line says where they diverge."""

_ALL_STAGES = 12  # of a phase; where there are more, runs of alike ones are joined
_JOINED = 3  # alike stages in a row that stay single
_PHASES: dict[Phase, str] = {"forward": "forward", "backward": "backward", "step": "optimizer"}
_COLUMNS: dict[str, Literal["left", "right"]] = {
    "quantity": "left",
    "dtype": "left",
    "worst": "right",
    "allowed": "right",
    "where": "left",
    "": "left",
}


def print_report(report: ParityReport, console: Console) -> None:
    """Write what a comparison found, ending with a line that says whether it passed."""
    report = _visible(report)
    sides = f"{report.candidate} against {report.reference}"
    if not report.results:
        console.print(Text(f"{sides}: nothing was compared", "bold red"))
        return
    sizes = f"{_count(len(report.cases), 'case')}, {_count(len(report.results), 'tensor')}"
    console.print(Text(f"{sides}: {sizes}", "italic"))
    console.print(_worst(report))
    failures = report.failures
    if failures:
        _print_divergences(report, console)
        for failure in failures[:SHOWN_FAILURES]:
            console.print(Text(f"FAIL {failure}", "red"), soft_wrap=True)
        if len(failures) > SHOWN_FAILURES:
            console.print(Text(f"... and {len(failures) - SHOWN_FAILURES} more failures, see the JSON file"))
        console.print()
    for curve in losses(report):
        console.print(Text(_losses(curve)))
    if report.untold:
        console.print(Text(f"FAIL: nothing was compared in {', '.join(report.untold)}", "bold red"))
    if failures:
        console.print(Text(f"FAIL: {len(failures)} of {len(report.results)} tensors differ", "bold red"))
    elif report.passed:
        console.print(Text(f"pass: all of {len(report.results)} tensors are within their bounds", "green"))


def print_forecaster(forecaster: Mapping[str, Any], console: Console) -> None:
    """Write the errors of a trained forecaster next to those of the baselines.

    Parameters
    ----------
    forecaster
        What `mamba2_bridge.parity.training.train_forecaster` returned.
    console
        Where to.
    """
    console.print(Text("native forecaster of CO2, trained in fp32: test errors in ppm", "italic"))
    table = _table()
    table.add_column("forecast")
    table.add_column("RMSE", justify="right")
    table.add_column("MAE", justify="right")
    for name, score in {"mamba2": forecaster["test"], **forecaster["baselines"]}.items():
        table.add_row(Text(name), f"{score['rmse']:.4f}", f"{score['mae']:.4f}")
    console.print(table)
    model = forecaster["test"]["rmse"]
    unbeaten = [name for name, score in forecaster["baselines"].items() if not model < score["rmse"]]
    verdict = f"not better than: {'; '.join(unbeaten)}" if unbeaten else "better than every baseline"
    console.print(Text(f"{verdict}; in {forecaster['folder']}"), soft_wrap=True)


def _visible(report: ParityReport) -> ParityReport:
    """Spell out what in names and messages would work on the terminal rather than be seen on it."""

    def visible(text: str) -> str:
        plain = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
        return text if text.isprintable() else "".join(plain)

    return replace(
        report,
        candidate=visible(report.candidate),
        reference=visible(report.reference),
        cases=[visible(case) for case in report.cases],
        results=[
            replace(
                result,
                case=visible(result.case),
                tensor=visible(result.tensor),
                stage=visible(result.stage),
                problem=None if result.problem is None else visible(result.problem),
            )
            for result in report.results
        ],
    )


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _worst(report: ParityReport) -> Table:
    table = _table()
    for heading, justify in _COLUMNS.items():
        table.add_column(heading, justify=justify, no_wrap=heading != "where", overflow="fold")
    for result, _ in report.worst():
        step = f", step {result.step}" if result.phase == "step" else ""
        isolated = ", isolated" if result.mode == "isolated" else ""
        table.add_row(
            Text(result.quantity),
            _short(result.dtype),
            "-" if result.difference is None else f"{result.error:.1e}",
            "-" if result.bound is None else f"{result.bound:.1e}",
            Text(f"{result.case}{isolated}{step}: {result.tensor}"),
            Text("pass", "green") if result.passed else Text("FAIL", "bold red"),
        )
    return table


def _print_divergences(report: ParityReport, console: Console) -> None:
    of_case: dict[str, list[Run]] = {}
    for run in runs(report):
        of_case.setdefault(run.case, []).append(run)
    wrong = {case: of for case, of in of_case.items() if any(run.divergence is not None for run in of)}
    console.print(Text("Where it diverges; figures are errors as multiples of the bound", "bold"))
    for case in list(wrong)[:OPENED_CASES]:
        console.print(_tree(case, wrong[case]))
    closed = list(wrong)[OPENED_CASES:]
    if closed:
        console.print(Text("further cases, by the stage to look at first:", "bold"))
    for case in closed:
        dtypes: dict[str, list[str]] = {}
        for run in wrong[case]:
            if run.divergence is not None:
                dtypes.setdefault(_look_at(run.divergence), []).append(_short(run.dtype))
        stages = [f"{stage} in {' and '.join(of)}" for stage, of in dtypes.items()]
        console.print(Padding(Text(f"{case}: {'; '.join(stages)}"), (0, 0, 0, 2)))
    console.print()


def _tree(case: str, of_case: Sequence[Run]) -> Tree:
    tree = Tree(Text(case, "bold"), guide_style="dim")
    shown: Run | None = None
    for run in of_case:
        if run.divergence is None:
            tree.add(Text(f"{_short(run.dtype)}: ok"))
            continue
        label = Text.assemble(_short(run.dtype), ": look at ", (_look_at(run.divergence), "bold red"))
        branch = tree.add(Group(label, *_details(run.divergence)))
        if shown is not None and _marks(run) == _marks(shown):
            branch.add(Text(f"stages as in {_short(shown.dtype)}", "dim"))
            continue
        shown = run
        for phase, rows in run.phases.items():
            if any(any(row.wrong) for row in rows):
                branch.add(Group(Text(_PHASES[phase], "bold"), _stages(rows)))
            else:
                unit = "step" if phase == "step" else "stage"
                branch.add(Text(f"{_PHASES[phase]}: ok, {_count(len(rows), unit)}"))
    return tree


def _look_at(result: TensorResult) -> str:
    how = f"step {result.step}" if result.phase == "step" else f"{result.phase}, {result.mode}"
    return f"{result.stage} ({how})"


def _marks(run: Run) -> list[tuple[Phase, str, tuple[bool, bool], bool]]:
    """Tell which stages are wrong how; steps, which only fp64 takes, aside."""
    return [
        (phase, row.name, row.wrong, row.diverges)
        for phase, rows in run.phases.items()
        if phase != "step"
        for row in rows
    ]


def _details(result: TensorResult) -> Iterator[Text]:
    """Say of the first wrong tensor all that there is to say."""
    shape = f" of shape {list(result.shape)}" if result.shape else ""
    yield Text(f"{result.element}{shape}")
    if result.difference is not None:
        yield Text(f"got {result.difference.got!r}, want {result.difference.want!r}")
    if result.problem is not None:
        yield Text(result.problem, "red")
    if result.difference is None or result.bound is None:
        return
    noise = "" if math.isnan(result.noise) else f", {figure(result.noise)} times the noise floor"
    bound = f"{figure(result.badness)} times the bound {figure(result.bound)}"
    yield Text(f"error {figure(result.error)}: {bound}{noise}")
    if result.hint:
        yield Text(result.hint, "red")


def _stages(rows: Sequence[Row]) -> RenderableType:
    isolated = any(row.isolated is not None for row in rows)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for heading in ("accumulated", "isolated") if isolated else ("accumulated",):
        grid.add_column(heading, no_wrap=True)
    grid.add_column("stage", overflow="fold")
    headings = ["accumulated", *["isolated"] * isolated, ""]
    grid.add_row(*(Text(heading, "dim") for heading in headings))
    for group in _joined(rows):
        name = Text(group[0].name)
        if len(group) > 1:
            name = Text(f"{len(group)}: {group[0].name} to {group[-1].name}", "dim")
        elif group[0].diverges:
            name = Text.assemble((group[0].name, "bold red"), " <== look here")
        cells = [_mark([row.accumulated for row in group])]
        cells += [_mark([row.isolated for row in group])] * isolated
        grid.add_row(*cells, name)
    return grid


def _joined(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Join more than a few alike rows that follow each other, where there are many in all."""
    if len(rows) <= _ALL_STAGES:
        yield from ([row] for row in rows)
        return
    start = 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and _alike(rows[end]) == _alike(rows[start]):
            continue
        if end - start > _JOINED:
            yield rows[start:end]
        else:
            yield from ([row] for row in rows[start:end])
        start = end


def _alike(row: Row) -> tuple[bool, bool, bool]:
    return (*row.wrong, row.diverges)


def _mark(cells: Sequence[Cell | None]) -> Text:
    there = [cell for cell in cells if cell is not None]
    if not there:
        return Text("-", "dim")
    worst = max((cell.worst for cell in there), key=lambda result: result.badness)
    times = "" if worst.difference is None else figure(worst.badness)
    if any(cell.wrong for cell in there):
        return Text(f"WRONG {times}", "bold red")
    return Text(f"ok    {times}", "green")


def _losses(curve: Losses) -> str:
    return (
        f"{curve.case}: {_count(len(curve.steps), 'optimizer step')} in {_short(curve.dtype)}, "
        f"loss {curve.got[0]:.6f} to {curve.got[-1]:.6f}, losses differ by at most {curve.difference:.1e}"
    )


def _short(dtype: str) -> str:
    return dtype.replace("float", "fp")


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
