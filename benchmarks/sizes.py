"""The sizes of the models that are timed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MixerSize:
    """Sizes of one mixer, named as in the paper.

    Attributes
    ----------
    d_model, d_state, headdim, expand, ngroups, d_conv
        As in `mamba2_bridge.Mamba2Config`.
    """

    d_model: int
    d_state: int
    headdim: int
    expand: int = 2
    ngroups: int = 1
    d_conv: int = 4

    @property
    def d_inner(self) -> int:
        """Width between the projections."""
        return self.expand * self.d_model

    @property
    def nheads(self) -> int:
        """Number of heads."""
        return self.d_inner // self.headdim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.d_inner + 2 * self.ngroups * self.d_state

    @property
    def d_in_proj(self) -> int:
        """Width of the input projection's output: z, x, B, C and dt."""
        return self.d_inner + self.conv_dim + self.nheads


@dataclass(frozen=True)
class StackSize:
    """Sizes of a forecaster: encoder, residual mixers, norm, head on the last timestep.

    Attributes
    ----------
    mixer
        The mixer of every layer.
    n_layer
        How many there are.
    d_input, d_output
        Widths of the input and of the prediction.
    """

    mixer: MixerSize
    n_layer: int
    d_input: int
    d_output: int


BLOCK = MixerSize(d_model=768, d_state=128, headdim=64)
"""One mixer of mamba2-130m."""

SMALL = StackSize(MixerSize(d_model=64, d_state=16, headdim=16), n_layer=4, d_input=64, d_output=1)
"""A forecaster as one trains it on a time series."""
