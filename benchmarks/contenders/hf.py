"""Hugging Face transformers' mixer, on the path that it takes on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import DynamicCache, Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from benchmarks.contenders.in_torch import TorchContender
from benchmarks.contenders.stack import Stack
from benchmarks.sizes import StackSize

if TYPE_CHECKING:
    from torch import Tensor, nn

    from benchmarks.sizes import MixerSize


MOST_CHUNK = 128
"""Tokens of a chunk, at most. Its default, 256, is slower on every work, and sequences are padded to it."""


class Transformers(TorchContender):
    """``transformers``' ``Mamba2Mixer`` with its own cache; its scan is in fp32 in fp64 works, too."""

    def build(self) -> nn.Module:
        """Make its mixer, or a stack of them."""
        size = self.work.size
        if isinstance(size, StackSize):
            config = self._config(size.mixer, size.n_layer)
            return Stack(size, lambda layer: Mamba2Mixer(config, layer))
        self.config = self._config(size, 1)
        mixer: nn.Module = Mamba2Mixer(self.config, 0)
        return mixer

    def read_prompt(self, tokens: Tensor) -> Any:
        """Give the cache that a forward pass fills."""
        cache = DynamicCache(config=self.config)
        self.model(tokens, cache=cache)
        return cache

    def step(self, u_t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run one token; the cache changes in place."""
        return self.model(u_t, cache=state), state

    def _config(self, size: MixerSize, n_layer: int) -> Mamba2Config:
        return Mamba2Config(
            hidden_size=size.d_model,
            state_size=size.d_state,
            head_dim=size.headdim,
            num_heads=size.nheads,
            expand=size.expand,
            n_groups=size.ngroups,
            conv_kernel=size.d_conv,
            num_hidden_layers=n_layer,
            chunk_size=min(MOST_CHUNK, self.work.seqlen),
        )
