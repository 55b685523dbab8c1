"""Seeded cases for every option of a mixer, and training runs of mixers and forecasters.

All numbers of the first batch are exact in float32, so that one case serves both dtypes and a cast loses
nothing.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mamba2_bridge.parity.cases import AdamW, Batch, Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from mamba2_bridge.parity.cases import Array

T = TypeVar("T")


class State(NamedTuple):
    """A mixer's state: ``conv_state`` (b, conv_dim, d_conv - 1), ``ssm_state`` (b, h, p, n)."""

    conv_state: Array
    ssm_state: Array

    def named(self, prefix: str) -> dict[str, Array]:
        """Return both parts under their names in cases, after ``prefix``."""
        return {f"{prefix}conv_state": self.conv_state, f"{prefix}ssm_state": self.ssm_state}


class Sizes(NamedTuple):
    """Widths that follow from a config; the words are those of the twin."""

    d_inner: int
    d_ssm: int
    nheads: int
    conv_dim: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Derive them from keywords of Mamba2Config, all of the sizes given."""
        d_inner = config["expand"] * config["d_model"]
        d_ssm = config.get("d_ssm") or d_inner
        conv_dim = d_ssm + 2 * config["ngroups"] * config["d_state"]
        return cls(d_inner, d_ssm, d_ssm // config["headdim"], conv_dim)


def mixer_case(
    name: str,
    config: Mapping[str, Any],
    params: Mapping[str, Array],
    u: Array,
    dy: Array,
    state: State | None = None,
    dstate: State | None = None,
) -> Case:
    """Make a case of one mixer, forward and backward.

    Parameters
    ----------
    name
        What reports call it.
    config
        Keywords of Mamba2Config.
    params
        Every parameter by its state-spaces name.
    u, dy
        Input and the output's upstream gradient, (batch, seqlen, d_model).
    state
        State before the first token; None: zeros, whose gradients aren't asked for.
    dstate
        Upstream gradients of the final state; None: zeros.
    """
    inputs = {"u": u, **({} if state is None else state.named("init."))}
    upstream = {"out": dy, **({} if dstate is None else dstate.named("final."))}
    return Case(name, params, [Batch(inputs, upstream)], config)


def sequence_and_states(inputs: Mapping[str, T]) -> tuple[T, list[tuple[T, T]]]:
    """Tell the inputs of a Mamba-2 model apart: its sequence, and conv_state and ssm_state of each layer."""
    sequence = inputs["u"] if "u" in inputs else inputs["x"]
    layers = ["", *(f"{i}." for i in range(len(inputs)))]
    states = [
        (inputs[f"init.{layer}conv_state"], inputs[f"init.{layer}ssm_state"])
        for layer in layers
        if f"init.{layer}conv_state" in inputs
    ]
    return sequence, states


def by_token(case: Case) -> Case:
    """Make the same case one that goes in token by token."""
    return replace(case, name=f"{case.name}, by token", by_token=True)


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """List a mixer's parameters, by state-spaces name, with their shapes."""
    sizes = Sizes.of(config)
    d_model = config["d_model"]
    d_in_proj = sizes.d_inner + (sizes.d_inner - sizes.d_ssm) + sizes.conv_dim + sizes.nheads
    shapes: dict[str, tuple[int, ...]] = {"in_proj.weight": (d_in_proj, d_model)}
    if config.get("bias", False):
        shapes["in_proj.bias"] = (d_in_proj,)
    shapes["conv1d.weight"] = (sizes.conv_dim, 1, config["d_conv"])
    if config.get("conv_bias", True):
        shapes["conv1d.bias"] = (sizes.conv_dim,)
    shapes["dt_bias"] = shapes["A_log"] = (sizes.nheads,)
    shapes["D"] = (sizes.d_ssm if config.get("D_has_hdim", False) else sizes.nheads,)
    if config.get("rmsnorm", True):
        shapes["norm.weight"] = (sizes.d_ssm,)
    shapes["out_proj.weight"] = (d_model, sizes.d_inner)
    if config.get("bias", False):
        shapes["out_proj.bias"] = (d_model,)
    return shapes


def draw_parameters(
    rng: np.random.Generator, config: Mapping[str, Any], dt_range: tuple[float, float] = (0.02, 1.0)
) -> dict[str, Array]:
    """Draw every parameter of a mixer such that none has a special value: no bias zero, no norm weight one.

    ``dt_range`` bounds the time steps of a token whose projection gives nothing.
    """
    shapes = parameter_shapes(config)
    return {name: draw_parameter(rng, name, shape, dt_range) for name, shape in shapes.items()}


def draw_parameter(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], dt_range: tuple[float, float] = (0.02, 1.0)
) -> Array:
    """Draw one parameter of a mixer, by its state-spaces name."""
    if name == "dt_bias":
        value = np.log(np.expm1(rng.uniform(*dt_range, shape)))  # the inverse of softplus
    elif name == "A_log":
        value = np.log(rng.uniform(0.1, 4.0, shape))
    elif name in ("D", "norm.weight"):
        value = 1.0 + 0.3 * rng.standard_normal(shape)
    elif name.endswith("bias"):
        value = 0.1 * rng.standard_normal(shape)
    else:
        value = rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return exact(value)


def draw_forecaster(rng: np.random.Generator, config: Mapping[str, Any]) -> dict[str, Array]:
    """Draw every parameter of a forecaster, those of its mixers as `draw_parameters` does.

    Parameters
    ----------
    rng
        Where numbers come from.
    config
        Keywords of Mamba2Config, and ``n_layer``, ``d_input``, ``d_output``.
    """
    d_model, d_input, d_output = config["d_model"], config["d_input"], config["d_output"]
    params = {
        "encoder.weight": rng.standard_normal((d_model, d_input)) / np.sqrt(d_input),
        "encoder.bias": 0.1 * rng.standard_normal(d_model),
        "norm_f.weight": 1.0 + 0.1 * rng.standard_normal(d_model),
        "head.weight": rng.standard_normal((d_output, d_model)) / np.sqrt(d_model),
        "head.bias": 0.1 * rng.standard_normal(d_output),
    }
    for i in range(config["n_layer"]):
        params[f"layers.{i}.norm.weight"] = 1.0 + 0.1 * rng.standard_normal(d_model)
        mixer = draw_parameters(rng, config)
        params |= {f"layers.{i}.mixer.{name}": value for name, value in mixer.items()}
    return {name: exact(value) for name, value in params.items()}


@dataclass(frozen=True)
class _Plan:
    """How a case is drawn: ``config`` on top of the common sizes, and lengths."""

    config: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 2
    seqlen: int = 33
    states: bool = False
    dt_range: tuple[float, float] = (0.02, 1.0)


# A dozen channels or more share a norm: where a few are all small by chance, fp32 loses digits.
_SIZES: dict[str, Any] = {
    "d_model": 12, "d_state": 6, "d_conv": 4, "expand": 2, "headdim": 4, "ngroups": 1, "chunk_size": 16,
}  # fmt: skip

_PLANS = {
    "plain": _Plan(),
    "states": _Plan(states=True, seqlen=47),
    "groups": _Plan({"d_model": 18, "ngroups": 3}, states=True),
    "groups_one_norm": _Plan({"ngroups": 2, "norm_groups": 1, "norm_eps": 1e-3}),
    "D_per_channel": _Plan({"D_has_hdim": True}, states=True),
    "no_rmsnorm": _Plan({"rmsnorm": False, "conv_bias": False}),
    "norm_before_gate": _Plan({"norm_before_gate": True, "ngroups": 2}),
    "gated_mlp": _Plan({"d_ssm": 12, "bias": True}, states=True),
    "dt_limit": _Plan({"dt_limit": (0.1, 0.6)}, states=True),
    "conv1": _Plan({"d_conv": 1, "bias": True}, states=True),
    "conv2_odd_sizes": _Plan(
        {"d_conv": 2, "d_model": 5, "expand": 3, "headdim": 5, "d_state": 7, "chunk_size": 7}, states=True
    ),
    "one_token": _Plan(seqlen=1, states=True),
    "no_token": _Plan(seqlen=0, states=True),
    "no_batch": _Plan(batch=0, seqlen=5, states=True),
    "large_steps": _Plan({"chunk_size": 256}, batch=1, seqlen=512, states=True, dt_range=(1.8, 2.2)),
}


def mixer_cases(seed: int = 0) -> list[Case]:
    """Draw the cases, every option of the mixer among them, with and without states."""
    return [_draw(name, plan, seed) for name, plan in _PLANS.items()]


_TRAINED: dict[str, Any] = {
    "d_model": 16, "d_state": 8, "d_conv": 4, "expand": 2, "headdim": 8, "ngroups": 1, "chunk_size": 16,
}  # fmt: skip


def noise_case(seed: int = 0, steps: int = 10) -> Case:
    """Fit one mixer to noise, with a weight decay large enough to show what it falls on."""
    rng = generator(seed, "noise")
    config = {**_TRAINED, "ngroups": 2, "bias": True, "D_has_hdim": True}
    shape = (2, 24, config["d_model"])
    batches = [_to_fit(rng, "u", shape, shape) for _ in range(steps)]
    return Case(
        "AdamW on noise", draw_parameters(rng, config), batches, config, AdamW(lr=1e-3, weight_decay=0.1)
    )


def forecaster_case(seed: int = 0, n_layer: int = 2, steps: int = 3, **changes: Any) -> Case:
    """Fit a forecaster to noise: every tensor of every layer, forward and backward, and some steps."""
    rng = generator(seed, f"forecaster {n_layer}")
    config = {**_TRAINED, "n_layer": n_layer, "d_input": 3, "d_output": 2, **changes}
    batches = [_to_fit(rng, "x", (2, 20, config["d_input"]), (2, config["d_output"])) for _ in range(steps)]
    params = draw_forecaster(rng, config)
    return Case("forecaster on noise", params, batches, config, AdamW(lr=1e-3, weight_decay=0.1))


def _to_fit(rng: np.random.Generator, name: str, shape: tuple[int, ...], target: tuple[int, ...]) -> Batch:
    inputs = {name: exact(rng.standard_normal(shape))}
    return Batch(inputs, target=exact(rng.standard_normal(target)))


def generator(seed: int, name: str) -> np.random.Generator:
    """Give a case its own generator, so that no case changes when another is added."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _draw(name: str, plan: _Plan, seed: int) -> Case:
    rng = generator(seed, name)
    config = {**_SIZES, **plan.config}
    u_shape = (plan.batch, plan.seqlen, config["d_model"])
    params = draw_parameters(rng, config, plan.dt_range)
    u, dy = (exact(rng.standard_normal(u_shape)) for _ in range(2))
    state = draw_state(rng, config, plan.batch) if plan.states else None
    dstate = draw_state(rng, config, plan.batch) if plan.states else None
    return mixer_case(name, config, params, u, dy, state, dstate)


def draw_state(rng: np.random.Generator, config: Mapping[str, Any], batch: int) -> State:
    """Draw a state of normal numbers."""
    sizes = Sizes.of(config)
    return State(
        exact(rng.standard_normal((batch, sizes.conv_dim, config["d_conv"] - 1))),
        exact(rng.standard_normal((batch, sizes.nheads, config["headdim"], config["d_state"]))),
    )


def exact(values: Array) -> Array:
    """Round to float32, keep as float64."""
    return values.astype(np.float32).astype(np.float64)
