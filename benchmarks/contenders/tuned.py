"""Mamba-2 in careful PyTorch, `tuned_torch`: the contender to beat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.contenders.in_torch import TorchContender
from benchmarks.contenders.stack import Stack
from benchmarks.contenders.tuned_torch import tuned_block
from benchmarks.sizes import StackSize

if TYPE_CHECKING:
    from torch import Tensor, nn

    from benchmarks.sizes import MixerSize


class Tuned(TorchContender):
    """``tuned_block``, or a stack of them."""

    model: Any

    def build(self) -> nn.Module:
        """Make a block, or a stack of them."""
        size = self.work.size
        if isinstance(size, StackSize):
            return Stack(size, lambda _: _block(size.mixer))
        return _block(size)

    def their_name(self, name: str) -> str:
        """Name a mixer's norm as it does."""
        return re.sub(r"(^|mixer\.)norm\.weight$", r"\1norm_weight", name)

    def read_prompt(self, tokens: Tensor) -> Any:
        """Step through the tokens."""
        state = self.model.state(tokens.shape[0])
        for token in tokens.split(1, dim=1):
            _, state = self.model.step(token, state)
        return state

    def step(self, u_t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run one token."""
        y, state = self.model.step(u_t, state)
        return y, state


def _block(size: MixerSize) -> nn.Module:
    block: nn.Module = tuned_block(
        size.d_model,
        d_state=size.d_state,
        headdim=size.headdim,
        ngroups=size.ngroups,
        d_conv=size.d_conv,
        expand=size.expand,
    )
    return block
