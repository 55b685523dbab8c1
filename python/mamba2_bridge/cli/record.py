"""``mamba2-bridge record``: what a model makes of a case, as a folder to compare with elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mamba2_bridge.cli.errors import one_line_errors
from mamba2_bridge.cli.sides import SIDES, checkpoint_config, checkpoint_params, side
from mamba2_bridge.config import Mamba2Config
from mamba2_bridge.parity.artifact import record as record_artifact
from mamba2_bridge.parity.drawn import drawn_case

_AT_LEAST_1 = click.IntRange(min=1)
_SIZES = ("d_model", "n_layer", "d_input", "d_output", "d_state", "headdim", "expand", "d_conv", "ngroups")


@click.command()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the artifact.")
@click.option("--model", type=click.Choice(SIDES), default="native", show_default=True, help="What computes.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Folder of save_pretrained, for configuration and parameters. Default: drawn by --seed.",
)
@click.option("--d-model", type=_AT_LEAST_1, default=32, show_default=True, help="Width of the model.")
@click.option("--n-layer", type=_AT_LEAST_1, help="Layers of a forecaster. Default: one mixer alone.")
@click.option("--d-input", type=_AT_LEAST_1, default=3, show_default=True, help="Inputs of a forecaster.")
@click.option("--d-output", type=_AT_LEAST_1, default=2, show_default=True, help="Outputs of a forecaster.")
@click.option("--d-state", type=_AT_LEAST_1, default=16, show_default=True, help="State size.")
@click.option("--headdim", type=_AT_LEAST_1, default=16, show_default=True, help="Width of a head.")
@click.option("--expand", type=_AT_LEAST_1, default=2, show_default=True, help="Inner width / width.")
@click.option("--d-conv", type=_AT_LEAST_1, default=4, show_default=True, help="Length of the convolution.")
@click.option("--ngroups", type=_AT_LEAST_1, default=1, show_default=True, help="Groups of B and C.")
@click.option("--batch", type=_AT_LEAST_1, default=2, show_default=True, help="Sequences in a batch.")
@click.option("--seqlen", type=_AT_LEAST_1, default=33, show_default=True, help="Tokens of a sequence.")
@click.option("--steps", type=click.IntRange(min=0), default=0, show_default=True, help="Optimizer steps.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Of the model; a reference is best in float64.",
)
@click.option("--floors/--no-floors", default=True, help="Record noise floors; in float64 alone.")
@click.pass_context
def record(
    ctx: click.Context,
    /,
    *,
    out: Path,
    model: str,
    checkpoint: Path | None,
    batch: int,
    seqlen: int,
    steps: int,
    seed: int,
    dtype: Any,
    floors: bool,
    **sizes: Any,
) -> None:
    """Run a model on a seeded case and write all its tensors to a folder, for mamba2-bridge compare.

    Inputs, parameters, intermediate tensors, outputs, gradients and optimizer steps are written one by one: a
    model that does not fit into memory twice can be recorded. An artifact that is there is replaced when the
    new one is whole.
    """
    with one_line_errors():
        if checkpoint is None:
            config, params = _config(**sizes), None
        else:
            _only_the_checkpoint(ctx)
            config, params = checkpoint_config(checkpoint), checkpoint_params(checkpoint)
        case = drawn_case(config, seed, batch=batch, seqlen=seqlen, steps=steps, params=params)
        record_artifact(side(model), case, out, dtype=dtype, floors=floors, seed=seed)
        click.echo(f"{case} by {model} in {dtype}: written to {out}")


def _config(*, n_layer: int | None, d_input: int, d_output: int, **mixer: Any) -> dict[str, Any]:
    config = Mamba2Config(**mixer).to_dict()
    return (
        config
        if n_layer is None
        else {**config, "n_layer": n_layer, "d_input": d_input, "d_output": d_output}
    )


def _only_the_checkpoint(ctx: click.Context) -> None:
    """Refuse sizes beside --checkpoint, which has its own."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in _SIZES
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--checkpoint has its own sizes; leave out {', '.join(given)}")
