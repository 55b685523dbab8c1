"""Parameters and inputs of a work: the same numbers in every process, by the models' own initialisation.

Named and shaped as in state-spaces' ``Mamba2``, and as `mamba2_bridge` takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.sizes import MixerSize, StackSize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.works import Work

Arrays = dict[str, "NDArray[Any]"]

PROMPT_LENGTH = 8
"""Tokens before a decode step, so that it starts from a state that is not zero."""


def parameters(work: Work) -> Arrays:
    """Give every parameter of the work's model by name."""
    rng = np.random.default_rng(0)
    drawn = _mixer(work.size, rng) if isinstance(work.size, MixerSize) else _stack(work.size, rng)
    return {name: value.astype(work.dtype) for name, value in drawn.items()}


def inputs(work: Work) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the input (batch, seqlen, width) and the upstream gradient of the output."""
    rng = np.random.default_rng(1)
    u, dy = rng.standard_normal(work.input_shape), rng.standard_normal(work.output_shape)
    return u.astype(work.dtype), dy.astype(work.dtype)


def prompt(work: Work) -> NDArray[Any]:
    """Give the tokens before a decode step, (batch, `PROMPT_LENGTH`, width)."""
    batch, _, width = work.input_shape
    return np.random.default_rng(2).standard_normal((batch, PROMPT_LENGTH, width)).astype(work.dtype)


def _mixer(size: MixerSize, rng: np.random.Generator) -> Arrays:
    dt = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), size.nheads))
    return {
        "in_proj.weight": _linear(rng, size.d_in_proj, size.d_model),
        "conv1d.weight": _uniform(rng, (size.conv_dim, 1, size.d_conv), size.d_conv),
        "conv1d.bias": _uniform(rng, (size.conv_dim,), size.d_conv),
        "dt_bias": dt + np.log(-np.expm1(-dt)),  # softplus(dt_bias) = dt
        "A_log": np.log(rng.uniform(1, 16, size.nheads)),
        "D": np.ones(size.nheads),
        "norm.weight": np.ones(size.d_inner),
        "out_proj.weight": _linear(rng, size.d_model, size.d_inner),
    }


def _stack(size: StackSize, rng: np.random.Generator) -> Arrays:
    d_model = size.mixer.d_model
    arrays = {
        "encoder.weight": _linear(rng, d_model, size.d_input),
        "encoder.bias": _uniform(rng, (d_model,), size.d_input),
    }
    for layer in range(size.n_layer):
        arrays[f"layers.{layer}.norm.weight"] = np.ones(d_model)
        mixer = _mixer(size.mixer, rng).items()
        arrays.update({f"layers.{layer}.mixer.{name}": value for name, value in mixer})
    arrays["norm_f.weight"] = np.ones(d_model)
    arrays["head.weight"] = _linear(rng, size.d_output, d_model)
    arrays["head.bias"] = _uniform(rng, (size.d_output,), d_model)
    return arrays


def _linear(rng: np.random.Generator, outputs: int, fan_in: int) -> NDArray[Any]:
    return _uniform(rng, (outputs, fan_in), fan_in)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> NDArray[Any]:
    return rng.uniform(-(fan_in**-0.5), fan_in**-0.5, shape)
