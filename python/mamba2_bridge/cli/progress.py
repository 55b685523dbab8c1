"""The progress bar of a training: step, losses, time left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from mamba2_bridge.training import StepReport


class TrainingBar:
    """A bar that :meth:`update` moves; without a terminal it writes one line at the end."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(
                "loss {task.fields[loss]} validation {task.fields[validation]} best {task.fields[best]}"
            ),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None, visible=False, loss="-", validation="-", best="-")

    def __enter__(self) -> TrainingBar:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave its last state on the terminal."""
        self._bar.stop()

    def update(self, report: StepReport) -> None:
        """Show a step."""
        self._bar.update(
            self._task,
            total=report.steps,
            completed=report.step,
            visible=True,
            loss=_short(report.loss),
            validation=_short(report.validation_loss),
            best=_short(report.best_loss),
        )


def _short(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4g}"
