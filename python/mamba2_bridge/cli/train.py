"""``mamba2-bridge train``: the options of a TrainConfig, a progress bar, a table of errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.table import Table
from rich.text import Text

from mamba2_bridge import training
from mamba2_bridge.cli.console import make_console
from mamba2_bridge.cli.errors import one_line_errors
from mamba2_bridge.cli.progress import TrainingBar
from mamba2_bridge.exceptions import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(training.TrainConfig)}

Function = TypeVar("Function", bound=Callable[..., Any])


def _option(name: str, help_text: str, kind: Any = None) -> Callable[[Function], Function]:
    """Return the option of one field of TrainConfig, with that field's default and, as a rule, its type."""
    default = _DEFAULTS[name]
    return click.option(
        f"--{name.replace('_', '-')}",
        type=kind or type(default),
        default=default,
        show_default=default is not None,
        help=help_text,
    )


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--target", help="Column to predict.")
@click.option("--features", default="", help="Further input columns, separated by commas.")
@click.option("--time", help="Column of dates or numbers by which rows are ordered.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run; must be new.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with the run in this folder.")
@_option("window", "Rows the model sees.")
@_option("horizon", "How many rows ahead it predicts.")
@_option(
    "normalise",
    "Per window (for series with a trend), or by the training part.",
    click.Choice(["window", "train"]),
)
@_option("missing", "What to do with missing cells.", click.Choice(["error", "interpolate"]))
@_option("period", "Rows of a season, for the seasonal naive baseline.", int)
@_option(
    "calendar", "Harmonics of the time of year as inputs. Default: 4 for dates over some years, else 0.", int
)
@_option("validation", "Share of the rows to validate on.")
@_option("test", "Share of the rows, the last ones, to test on.")
@_option("d_model", "Width of the model.")
@_option("n_layer", "Number of layers.")
@_option("d_state", "State size.")
@_option("headdim", "Width of a head.")
@_option("expand", "Inner width / width.")
@_option("d_conv", "Length of the convolution.")
@_option("chunk_size", "Blocking of the scan; changes no result.")
@_option("steps", "Optimizer steps at most.")
@_option("batch_size", "Examples in a step.")
@_option("lr", "Highest learning rate.")
@_option("warmup", "Steps in which it rises.")
@_option("final_lr", "Last learning rate, as a fraction of the highest (cosine).")
@_option("schedule", "What follows the rise.", click.Choice(["constant", "cosine"]))
@_option("weight_decay", "AdamW's weight decay.")
@_option("clip", "Largest gradient norm; 0: any.")
@_option("average", "Decay of the running average of the weights that is validated and kept; 0: none.")
@_option("evaluate_every", "Steps between validations.")
@_option("patience", "Validations without a better one before training stops; 0: it goes on.")
@_option("seed", "Of the first weights and the order of examples.")
@_option("dtype", "Of the model.", click.Choice(["float32", "float64"]))
@_option("device", "cpu or cuda:0.")
@click.pass_context
def train(
    ctx: click.Context,
    /,
    *,
    file: Path | None,
    out: Path | None,
    resume: Path | None,
    target: str | None,
    features: str,
    **settings: Any,
) -> None:
    """Train a forecaster on the time series in FILE, test it against baselines, write everything to a folder.

    With --resume RUN an interrupted run goes on exactly where it was; FILE is then only needed if it has
    moved.
    """
    with one_line_errors():
        console = make_console()
        if resume is not None:
            _only_resume(ctx)
            made: list[training.StepReport] = []

            def on_step(report: training.StepReport) -> None:
                made.append(report)
                bar.update(report)

            with TrainingBar(console) as bar:
                result = training.resume(resume, file, on_step=on_step)
            if not made:
                console.print(f"already finished after step {result.steps}", highlight=False)
        else:
            if file is None or target is None or out is None:
                raise click.UsageError("give FILE, --target and --out, or --resume RUN")
            names = tuple(name.strip() for name in features.split(",") if name.strip())
            config = training.TrainConfig(target=target, features=names, **settings)
            with TrainingBar(console) as bar:
                result = training.train(file, config, out, on_step=bar.update)
        _print(console, result)


def _only_resume(ctx: click.Context) -> None:
    """Refuse settings beside --resume: a run goes on with its own."""
    given = [
        name
        for name in ctx.params
        if name not in ("file", "resume")
        and ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"--resume goes on with the run's own settings; leave out {flags}")


def _print(console: Console, result: training.TrainResult) -> None:
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    title = Text(f"Errors on the test part, in units of {result.config.target}")
    table = Table(title=title, title_justify="left")
    table.add_column("forecast")
    table.add_column("RMSE", justify="right")
    table.add_column("MAE", justify="right")
    for name, one in {"mamba2": result.test, **result.baselines}.items():
        table.add_row(name, f"{one.rmse:.4g}", f"{one.mae:.4g}", style="bold" if one is result.test else None)
    console.print(table)
    unbeaten = [name for name, beaten in result.beaten.items() if not beaten]
    verdict = f"not better than: {'; '.join(unbeaten)}" if unbeaten else "better than every baseline"
    console.print(f"best weights of step {result.best_step} of {result.steps}; {verdict}", highlight=False)
    console.print(f"written to {result.folder.path}", highlight=False, markup=False, soft_wrap=True)
