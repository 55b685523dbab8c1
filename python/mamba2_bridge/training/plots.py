"""The report of a run as a picture: losses, gradient norms, update ratios, predictions against the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mamba2_bridge.files import replaced_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mamba2_bridge.training.experiment import TrainResult
    from mamba2_bridge.training.record import Evaluation, Record


def write_report(
    result: TrainResult, record: Record, test: pd.DataFrame, when: pd.Series[Any] | NDArray[np.intp]
) -> None:
    """Write ``report.png``.

    Parameters
    ----------
    result : TrainResult
    record : Record
    test : pandas.DataFrame
        The test part: the target's column and ``prediction``.
    when : Series or ndarray
        (n,) time, or number, of the test rows.
    """
    # a figure of its own, not pyplot's: nothing global, no window system
    figure = Figure(figsize=(13, 9))
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    # by hand: to have matplotlib find the layout takes as long as all the drawing
    figure.subplots_adjust(left=0.05, right=0.86, bottom=0.06, top=0.95, hspace=0.25, wspace=0.15)
    _draw_losses(axes[0, 0], result, record)
    _draw_by_parameter(axes[0, 1], record.evaluations, "gradient_norms", "gradient norm of each parameter")
    _draw_predictions(axes[1, 0], result, test, when)
    _draw_by_parameter(axes[1, 1], record.evaluations, "update_ratios", "update of each parameter / its norm")
    figure.legend(handles=axes[0, 1].get_lines(), loc="center right", fontsize=6)
    with replaced_file(result.folder.report) as beside:
        figure.savefig(beside, dpi=110, format="png")


def _draw_losses(axes: Axes, result: TrainResult, record: Record) -> None:
    steps = [one.step for one in record.evaluations]
    axes.plot(
        np.arange(1, len(record.losses) + 1), record.losses, lw=0.5, alpha=0.35, label="training, each step"
    )
    axes.plot(steps, [one.train_loss for one in record.evaluations], label="training, mean")
    axes.plot(steps, [one.validation_loss for one in record.evaluations], label="validation")
    axes.axvline(result.best_step, color="grey", ls=":", label=f"best: step {result.best_step}")
    axes.set(title="mean square error, normalised", xlabel="step", yscale="log")
    axes.legend(fontsize="small")


def _draw_by_parameter(axes: Axes, evaluations: list[Evaluation], what: str, title: str) -> None:
    steps = [one.step for one in evaluations]
    names = list(getattr(evaluations[0], what))
    for number, name in enumerate(names):
        values = np.array([getattr(one, what)[name] for one in evaluations])
        # zeros (frozen, or not learning) would vanish on the logarithmic axis
        axes.plot(
            *(steps, np.maximum(values, 1e-8)),
            lw=1,
            label=name,
            color=f"C{number % 10}",
            ls="-:"[number // 10 % 2],
        )
    axes.set(title=title, xlabel="step", yscale="log")


def _draw_predictions(
    axes: Axes, result: TrainResult, test: pd.DataFrame, when: pd.Series[Any] | NDArray[np.intp]
) -> None:
    at = np.asarray(when)
    axes.plot(at, test[result.config.target].to_numpy(), "k", lw=1, label="truth")
    axes.plot(
        at, test["prediction"].to_numpy(), "C1", lw=1, label=f"prediction, {result.config.horizon} ahead"
    )
    errors = {"model": result.test, **result.baselines}
    legend = "RMSE\n" + "\n".join(f"{one.rmse:.4g}  {name}" for name, one in errors.items())
    axes.set(title=f"{result.config.target}, test part", xlabel=result.config.time or "row")
    axes.legend(fontsize=7, title=legend, title_fontsize=7)
