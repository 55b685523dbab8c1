"""What a run of the parity command found: a table for the terminal, a JSON file for everything else."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from mamba2_bridge.training.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from mamba2_bridge.parity.compare import TensorResult, Trajectory

_COLUMNS: dict[str, Literal["left", "right"]] = {
    "quantity": "left",
    "dtype": "left",
    "worst": "right",
    "allowed": "right",
    "where": "left",
    "": "left",
}
_SHOWN_FAILURES = 20


@dataclass(frozen=True)
class Report:
    """Everything that was compared.

    Attributes
    ----------
    candidate, reference
        Names of the runners.
    seed
        Of the cases.
    cases
        How many there were.
    results
        One for every tensor, in the order in which they were computed.
    trajectories
        The training runs; their results are among ``results``.
    versions
        Of the packages that took part.
    forecaster
        Errors of the forecaster that the candidate was trained to, and of the baselines; None: not trained.
    """

    candidate: str
    reference: str
    seed: int
    cases: int
    results: Sequence[TensorResult]
    trajectories: Sequence[Trajectory]
    versions: Mapping[str, str]
    forecaster: Mapping[str, Any] | None = None

    @property
    def failures(self) -> list[TensorResult]:
        """Every result that is not a pass."""
        return [result for result in self.results if not result.passed]

    @property
    def passed(self) -> bool:
        """Whether something was compared, since nothing proves nothing, and all of it is within bounds."""
        return bool(self.results) and not self.failures

    def worst(self) -> list[tuple[TensorResult, int]]:
        """Return each quantity's and dtype's worst result, by its bound, and how many there are."""

        def key(result: TensorResult) -> tuple[str, str]:
            return result.quantity, result.dtype

        order = {key(result): number for number, result in reversed(list(enumerate(self.results)))}
        ordered = sorted(self.results, key=lambda result: order[key(result)])
        groups = (list(group) for _, group in groupby(ordered, key))
        return [(max(group, key=lambda result: result.badness), len(group)) for group in groups]

    def print(self, console: Console) -> None:
        """Write the table, then each failure on a line of its own."""
        table = Table(
            title=f"{self.candidate} against {self.reference} in fp64: {self.cases} cases, "
            f"{len(self.results)} tensors, seed {self.seed}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for heading, justify in _COLUMNS.items():
            table.add_column(heading, justify=justify, no_wrap=heading != "where", overflow="fold")
        for result, _ in self.worst():
            table.add_row(
                result.quantity,
                result.dtype.replace("float", "fp"),
                f"{result.error:.1e}" if result.problem is None else "-",
                f"{result.bound:.1e}",
                Text(f"{result.case}: {result.tensor}"),
                Text("pass", "green") if result.passed else Text("FAIL", "bold red"),
            )
        console.print(table)
        for trajectory in self.trajectories:
            _print_losses(console, trajectory)
        failures = self.failures
        for failure in failures[:_SHOWN_FAILURES]:
            console.print(Text(f"FAIL {failure}", "red"), soft_wrap=True)
        if len(failures) > _SHOWN_FAILURES:
            console.print(f"... and {len(failures) - _SHOWN_FAILURES} more failures, see the JSON file")

    def print_forecaster(self, console: Console) -> None:
        """Write the forecaster's errors next to those of the baselines, where one was trained."""
        if self.forecaster is None:
            return
        table = Table(
            title="native forecaster of CO2, trained in fp32: test errors in ppm",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        table.add_column("forecast")
        table.add_column("RMSE", justify="right")
        table.add_column("MAE", justify="right")
        for name, score in {"mamba2": self.forecaster["test"], **self.forecaster["baselines"]}.items():
            table.add_row(name, f"{score['rmse']:.4f}", f"{score['mae']:.4f}")
        console.print(table)
        model = self.forecaster["test"]["rmse"]
        unbeaten = [name for name, score in self.forecaster["baselines"].items() if not model < score["rmse"]]
        verdict = f"not better than: {'; '.join(unbeaten)}" if unbeaten else "better than every baseline"
        console.print(f"{verdict}; in {self.forecaster['folder']}", highlight=False, soft_wrap=True)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; a number that is not finite is a string."""
        return {
            "passed": self.passed,
            "candidate": self.candidate,
            "reference": self.reference,
            "seed": self.seed,
            "cases": self.cases,
            "versions": dict(self.versions),
            "worst": [{**_plain(result), "tensors": count} for result, count in self.worst()],
            "failures": [str(result) for result in self.failures],
            "training": [{"problem": run.problem, "losses": run.losses} for run in self.trajectories],
            "forecaster": self.forecaster,
            "results": [_plain(result) for result in self.results],
        }

    def write(self, path: Path) -> None:
        """Write `to_dict` in place of ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_dict())


def _plain(result: TensorResult) -> dict[str, Any]:
    fields = {**asdict(result), "index": list(result.index), "passed": result.passed}
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


def _print_losses(console: Console, trajectory: Trajectory) -> None:
    curves = list(trajectory.losses.items())
    differences = [abs(a - b) for a, b in zip(*(losses for _, losses in curves), strict=True)]
    if not differences:
        return
    (_, losses), *_ = curves
    console.print(
        f"{trajectory.problem}: {len(losses)} AdamW steps in fp64, loss {losses[0]:.6f} to {losses[-1]:.6f},"
        f" losses differ by at most {max(differences):.1e}",
        highlight=False,
        markup=False,
    )
