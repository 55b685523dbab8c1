"""Intermediates of a forward pass as a mapping from names to arrays, and what is fed in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.named import NamedArrays

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Feed: TypeAlias = "Mapping[str, ArrayLike | tuple[ArrayLike, ArrayLike]]"
"""Values, or pairs of value and gradient, by the names of the intermediates that they replace."""


class Intermediates(NamedArrays):
    """Intermediates by name, in forward order, or the gradients to them. Reading gives copies.

    They stay native until they are read, in the model's dtype, and hold no part of the graph.

    Notes
    -----
    A mixer's names, with shapes (batch, seqlen, width), on ``kernels="composed"``:

    ==============  ==================================================  ============
    name            what                                                width
    ==============  ==================================================  ============
    `in_proj.mlp`   z0 and x0, where ``d_ssm`` < ``d_inner``            2 * d_mlp
    `in_proj.z`     the gate z                                          d_ssm
    `in_proj.xBC`   raw x, B and C                                      conv_dim
    `in_proj.dt`    raw dt                                              nheads
    `conv`          x, B and C after convolution and SiLU               conv_dim
    `dt`            dt after bias, softplus and clamp                   nheads
    `scan`          y of the scan, with D's part                        d_ssm
    `norm`          y after gate and norm                               d_ssm
    `mlp`           SiLU(z0) * x0, where ``d_ssm`` < ``d_inner``        d_mlp
    `out_proj`      the mixer's output                                  d_model
    ==============  ==================================================  ============

    On the fused kernels a mixer is one operation, which has `out_proj` alone.

    A forecaster's are `encoder`; of each layer `layers.{i}.norm`, those of `layers.{i}.mixer.` as above, and
    `layers.{i}`, the sum with the residual; `norm_f`, (batch, d_model) of the last timestep; and `head`, the
    prediction. An input without elements has none.
    """


def fed_arrays(feed: Any) -> list[tuple[str, ArrayLike, ArrayLike | None]]:
    """Give name, value and gradient of everything in a feed.

    Raises
    ------
    ConfigError
        It is no mapping from names to arrays and pairs.
    """
    if feed is None:
        return []
    if not isinstance(feed, Mapping):
        raise ConfigError(f"feed must be a mapping from names to arrays, got {type(feed).__name__}")
    return [_fed(name, value) for name, value in feed.items()]


def _fed(name: Any, value: Any) -> tuple[str, ArrayLike, ArrayLike | None]:
    if not isinstance(name, str):
        raise ConfigError(f"names in feed must be strings, got {name!r}")
    if not isinstance(value, tuple):
        return name, value, None
    if len(value) != 2:
        raise ConfigError(f"feed[{name!r}] must be an array or (value, gradient), got {len(value)} elements")
    return name, value[0], value[1]
