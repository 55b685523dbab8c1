"""What is compared: seeded cases for every option of the mixer, in numpy, for whichever framework runs them.

All numbers are exact in float32, so that one case serves both dtypes and a cast loses nothing.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import Self

    Array = NDArray[Any]


class State(NamedTuple):
    """A mixer's state: ``conv_state`` (b, conv_dim, d_conv - 1), ``ssm_state`` (b, h, p, n)."""

    conv_state: Array
    ssm_state: Array


@dataclass(frozen=True)
class Case:
    """One mixer, forward and backward.

    Attributes
    ----------
    name
        What reports call it.
    config
        Keywords of Mamba2Config.
    params
        Every parameter by its state-spaces name.
    u
        Input, (batch, seqlen, d_model).
    state
        State before the first token; None: zeros, whose gradients aren't asked for.
    dy
        Upstream gradient of the output, shaped like it.
    dstate
        Upstream gradients of the final state; None: zeros.
    """

    name: str
    config: Mapping[str, Any]
    params: Mapping[str, Array]
    u: Array
    state: State | None
    dy: Array
    dstate: State | None

    def __str__(self) -> str:
        return self.name

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the same case with every array in ``dtype``."""
        return replace(
            self,
            params={name: value.astype(dtype) for name, value in self.params.items()},
            u=self.u.astype(dtype),
            state=_state_astype(self.state, dtype),
            dy=self.dy.astype(dtype),
            dstate=_state_astype(self.dstate, dtype),
        )


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
    params: dict[str, Array] = {}
    for name, shape in parameter_shapes(config).items():
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
        params[name] = _exact(value)
    return params


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


def generator(seed: int, name: str) -> np.random.Generator:
    """Give a case its own generator, so that no case changes when another is added."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _draw(name: str, plan: _Plan, seed: int) -> Case:
    rng = generator(seed, name)
    config = {**_SIZES, **plan.config}
    u_shape = (plan.batch, plan.seqlen, config["d_model"])
    params = draw_parameters(rng, config, plan.dt_range)
    u, dy = (_exact(rng.standard_normal(u_shape)) for _ in range(2))
    state = _draw_state(rng, config, plan.batch) if plan.states else None
    dstate = _draw_state(rng, config, plan.batch) if plan.states else None
    return Case(name, config, params, u, state, dy, dstate)


def _draw_state(rng: np.random.Generator, config: Mapping[str, Any], batch: int) -> State:
    sizes = Sizes.of(config)
    return State(
        _exact(rng.standard_normal((batch, sizes.conv_dim, config["d_conv"] - 1))),
        _exact(rng.standard_normal((batch, sizes.nheads, config["headdim"], config["d_state"]))),
    )


def _exact(values: Array) -> Array:
    """Round to float32, keep as float64."""
    return values.astype(np.float32).astype(np.float64)


def _state_astype(state: State | None, dtype: DTypeLike) -> State | None:
    return None if state is None else State(*(part.astype(dtype) for part in state))
