"""A seeded case of any size: parameters are drawn when they are read, and never lie in memory together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.mamba2_cases import draw_parameter, exact, generator, parameter_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mamba2_bridge.parity.cases import Array, Arrays


def drawn_case(
    config: Mapping[str, Any],
    seed: int = 0,
    *,
    batch: int = 2,
    seqlen: int = 33,
    steps: int = 0,
    params: Arrays | None = None,
) -> Case:
    """Draw a case of a mixer, or with ``n_layer`` of a forecaster.

    Parameters
    ----------
    config
        Every keyword of Mamba2Config; for a forecaster ``n_layer``, ``d_input`` and ``d_output``, too.
    seed
        Of the parameters and the batches; each array's numbers depend on it and on the array's name alone.
    batch, seqlen
        Of every input.
    steps
        Optimizer steps, a batch each; 0: one batch, no steps.
    params
        Parameters, by the reference's names; None: drawn, exact in float32.
    """
    forecaster = "n_layer" in config
    name, width = ("x", config["d_input"]) if forecaster else ("u", config["d_model"])
    output = (batch, config["d_output"]) if forecaster else (batch, seqlen, width)
    batches = []
    for i in range(max(steps, 1)):
        rng = generator(seed, f"batch {i}")
        inputs = {name: exact(rng.standard_normal((batch, seqlen, width)))}
        wanted = exact(rng.standard_normal(output))
        fits = forecaster or steps > 0
        batches.append(Batch(inputs, target=wanted) if fits else Batch(inputs, {"out": wanted}))
    if params is None:
        shapes = forecaster_shapes(config) if forecaster else parameter_shapes(config)
        params = LazyArrays({of: partial(_drawn, seed, of, shape) for of, shape in shapes.items()})
    what = f"forecaster of {config['n_layer']} layers" if forecaster else "mixer"
    optimizer = AdamW(lr=1e-3, weight_decay=0.1) if steps > 0 else None
    return Case(f"{what}, d_model {config['d_model']}", params, batches, config, optimizer)


def forecaster_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """List a forecaster's parameters, in its own order, with their shapes."""
    d_model, d_input, d_output = config["d_model"], config["d_input"], config["d_output"]
    shapes: dict[str, tuple[int, ...]] = {"encoder.weight": (d_model, d_input), "encoder.bias": (d_model,)}
    for i in range(config["n_layer"]):
        shapes[f"layers.{i}.norm.weight"] = (d_model,)
        mixer = parameter_shapes(config)
        shapes |= {f"layers.{i}.mixer.{name}": shape for name, shape in mixer.items()}
    return shapes | {
        "norm_f.weight": (d_model,),
        "head.weight": (d_output, d_model),
        "head.bias": (d_output,),
    }


def _drawn(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    _, inside, of_mixer = name.partition(".mixer.")
    plain = of_mixer if inside else name.replace("norm_f.", "norm.")
    if plain.endswith("norm.weight"):
        plain = "norm.weight"
    return draw_parameter(generator(seed, name), plain, shape).astype(np.float32)
