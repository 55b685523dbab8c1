"""A forecaster in PyTorch around any mixer: encoder, residual mixers, norm, head on the last timestep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.sizes import StackSize

_EPS = 1e-5


class Layer(nn.Module):
    """``r + mixer(norm(r))``."""

    def __init__(self, d_model: int, mixer: nn.Module) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(d_model, eps=_EPS)
        self.mixer = mixer

    def forward(self, r: Tensor) -> Tensor:
        """Add the mixer's output to ``r`` (batch, seqlen, d_model)."""
        out: Tensor = self.mixer(self.norm(r))
        return r + out


class Stack(nn.Module):
    """(batch, seqlen, d_input) -> (batch, d_output), with the parameter names of our forecaster.

    Parameters
    ----------
    size
        Its sizes.
    make_mixer
        Makes the mixer of a layer, given the layer's number.
    """

    def __init__(self, size: StackSize, make_mixer: Callable[[int], nn.Module]) -> None:
        super().__init__()
        d_model = size.mixer.d_model
        self.encoder = nn.Linear(size.d_input, d_model)
        self.layers = nn.ModuleList(Layer(d_model, make_mixer(layer)) for layer in range(size.n_layer))
        self.norm_f = nn.RMSNorm(d_model, eps=_EPS)
        self.head = nn.Linear(d_model, size.d_output)

    def forward(self, x: Tensor) -> Tensor:
        """Predict from the last timestep of ``x`` (batch, seqlen, d_input)."""
        r = self.encoder(x)
        for layer in self.layers:
            r = layer(r)
        out: Tensor = self.head(self.norm_f(r[:, -1]))
        return out
