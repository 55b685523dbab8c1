"""A report's results by case, dtype, phase and stage: what its front ends draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mamba2_bridge.parity.report import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mamba2_bridge.parity.cases import DType
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.result import Mode, Phase, TensorResult


@dataclass(frozen=True)
class Cell:
    """What a stage made of its tensors, in one mode.

    Attributes
    ----------
    worst
        The result with the largest error by its bound.
    tensors, wrong
        How many there are, and how many of them fail.
    """

    worst: TensorResult
    tensors: int
    wrong: int


@dataclass(frozen=True)
class Row:
    """A stage; of optimizer steps, a step.

    Attributes
    ----------
    name
        The stage's, or ``step 1`` and so on.
    accumulated, isolated
        None where it was not run so.
    diverges
        Whether its case goes wrong here: see `ParityReport.divergences`.
    """

    name: str
    accumulated: Cell | None
    isolated: Cell | None
    diverges: bool

    @property
    def wrong(self) -> tuple[bool, bool]:
        """Whether something fails with errors accumulated, and on its own."""
        accumulated, isolated = (
            cell is not None and cell.wrong > 0 for cell in (self.accumulated, self.isolated)
        )
        return accumulated, isolated


@dataclass(frozen=True)
class Run:
    """A case in a dtype.

    Attributes
    ----------
    divergence
        Where it goes wrong; None: nowhere.
    phases
        Stages in the order in which they are gone through.
    """

    case: str
    dtype: DType
    divergence: TensorResult | None
    phases: Mapping[Phase, Sequence[Row]]


@dataclass(frozen=True)
class Losses:
    """Both sides' loss before each optimizer step.

    Attributes
    ----------
    steps
        Numbers of the steps whose losses could be compared.
    """

    case: str
    dtype: DType
    steps: Sequence[int]
    got: Sequence[float]
    want: Sequence[float]

    @property
    def difference(self) -> float:
        """The largest distance; NaN where one of the losses is."""
        distances = [abs(got - want) for got, want in zip(self.got, self.want, strict=True)]
        return max(distances, key=lambda distance: (math.isnan(distance), distance))


def figure(number: float) -> str:
    """Write a number in about two digits, without an exponent where it has few."""
    return f"{number:.0f}" if 10 <= abs(number) < 1e5 else f"{number:.2g}"


def runs(report: ParityReport) -> list[Run]:
    """Group a report's results by case and dtype, in the order in which they were computed."""
    groups: dict[tuple[str, DType], list[TensorResult]] = {}
    for result in report.results:
        groups.setdefault((result.case, result.dtype), []).append(result)
    divergences = {(result.case, result.dtype): result for result in report.divergences}
    return [
        Run(case, dtype, divergences.get((case, dtype)), _phases(results, divergences.get((case, dtype))))
        for (case, dtype), results in groups.items()
    ]


def losses(report: ParityReport) -> list[Losses]:
    """Tell the losses of every case that took optimizer steps and has any."""
    curves: dict[tuple[str, DType], list[tuple[int, float, float]]] = {}
    for result in report.results:
        if result.phase == "step" and result.tensor == "loss" and result.difference is not None:
            point = result.step, result.difference.got, result.difference.want
            curves.setdefault((result.case, result.dtype), []).append(point)
    return [Losses(case, dtype, *zip(*points, strict=True)) for (case, dtype), points in curves.items()]


def _phases(results: Iterable[TensorResult], divergence: TensorResult | None) -> dict[Phase, list[Row]]:
    rows: dict[Phase, dict[str, dict[Mode, list[TensorResult]]]] = {phase: {} for phase in PHASES}
    for result in results:
        name = f"step {result.step}" if result.phase == "step" else result.stage
        rows[result.phase].setdefault(name, {}).setdefault(result.mode, []).append(result)
    return {
        phase: [
            Row(
                name,
                _cell(modes.get("accumulated", ())),
                _cell(modes.get("isolated", ())),
                any(result is divergence for of_mode in modes.values() for result in of_mode),
            )
            for name, modes in of_phase.items()
        ]
        for phase, of_phase in rows.items()
        if of_phase
    }


def _cell(results: Sequence[TensorResult]) -> Cell | None:
    if not results:
        return None
    worst = max(results, key=lambda result: result.badness)
    return Cell(worst, len(results), sum(not result.passed for result in results))
