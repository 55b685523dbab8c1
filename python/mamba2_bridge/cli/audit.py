"""``mamba2-bridge audit``: faults that raise no error, in a trained or a saved model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from mamba2_bridge import checkpoint
from mamba2_bridge.auditing import audit as audit_model
from mamba2_bridge.cli.errors import EXIT_FAILURE, one_line_errors
from mamba2_bridge.exceptions import CheckpointError
from mamba2_bridge.model import Mamba2, Mamba2Forecaster

_MODELS: dict[str, Any] = {model.__name__: model for model in (Mamba2, Mamba2Forecaster)}
_AT_LEAST_1 = click.IntRange(min=1)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--batch", type=_AT_LEAST_1, default=2, show_default=True, help="Sequences in the batch.")
@click.option("--seqlen", type=_AT_LEAST_1, default=20, show_default=True, help="Tokens of a sequence.")
@click.option("--directions", type=_AT_LEAST_1, default=2, show_default=True, help="For each parameter.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the noise.")
@click.option(
    "--allowing-zero",
    metavar="NAME",
    multiple=True,
    help="Parameters (* for any text) that may be zero, or have none but zero gradients.",
)
def audit(
    *, folder: Path, batch: int, seqlen: int, directions: int, seed: int, allowing_zero: tuple[str, ...]
) -> None:
    """Audit the model in FOLDER, of save_pretrained or a run of mamba2-bridge train: its best checkpoint.

    On noise, in float64: does the loss reach every parameter, is every gradient there and right, is nothing
    kept from a constructor or rounded to float32 on the way, does an optimizer step move every parameter?

    Exit code 0: nothing is wrong. 1: something is, named. 2: no such model.
    """
    with one_line_errors():
        best = folder / "checkpoints" / "best"
        model = _load(best if best.is_dir() else folder)
        width = model.config.d_model if isinstance(model, Mamba2) else model.config.d_input
        x = np.random.default_rng(seed).standard_normal((batch, seqlen, width)).astype(model.dtype)
        report = audit_model(model, x, directions=directions, seed=seed, allowing_zero=allowing_zero)
        click.echo(str(report))
    sys.exit(0 if report.passed else EXIT_FAILURE)


def _load(folder: Path) -> Mamba2 | Mamba2Forecaster:
    kind = checkpoint.kind_of(folder)
    if kind not in _MODELS:
        raise CheckpointError(f"{folder} holds a {kind}; one of {', '.join(_MODELS)} can be audited")
    model: Mamba2 | Mamba2Forecaster = _MODELS[kind].from_pretrained(folder)
    return model
