"""``mamba2-bridge predict``: a trained forecaster on a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from mamba2_bridge import training
from mamba2_bridge.cli.errors import one_line_errors
from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.files import check_replaceable, replaced_file

if TYPE_CHECKING:
    from mamba2_bridge.training.table import Missing


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write. Default: standard output.")
@click.option(
    "--missing",
    type=click.Choice(["error", "interpolate"]),
    help="What to do with missing cells. Default: as in training.",
)
def predict(run: Path, file: Path, out: Path | None, missing: str | None) -> None:
    """Predict from every window of FILE with the forecaster in the folder RUN.

    The CSV has a row a prediction: number and time of the predicted row, the true value where FILE has it,
    the prediction. The last rows lie after the end of FILE.
    """
    with one_line_errors():
        if out is not None:
            check_replaceable(out)
            if out.exists() and file.exists() and out.samefile(file):
                raise ConfigError(f"--out {out} is the series itself: give another file")
        predictions = training.Run.load(run).predict(file, missing=cast("Missing | None", missing))
        text = predictions.to_csv(index=False, lineterminator="\n")
        if out is None:
            click.echo(text, nl=False)
            return
        with replaced_file(out) as beside:
            beside.write_text(text, encoding="utf-8")
        click.echo(f"{len(predictions)} predictions written to {out}", err=True)
