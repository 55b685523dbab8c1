"""The project's own twin in its chunked form: PyTorch as one writes it down from the paper."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.contenders.in_torch import TorchContender
from benchmarks.sizes import StackSize
from mamba2_bridge.torch.reference import Mamba2, Mamba2Forecaster

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mamba2_bridge.torch.reference import State


class Twin(TorchContender):
    """`mamba2_bridge.torch.reference` with ``scan="chunked"``."""

    model: Mamba2

    def build(self) -> nn.Module:
        """Make its mixer or its forecaster."""
        size = self.work.size
        if isinstance(size, StackSize):
            mixer = asdict(size.mixer)
            return Mamba2Forecaster(size.d_input, size.d_output, size.n_layer, scan="chunked", **mixer)
        return Mamba2(**asdict(size), scan="chunked")

    def read_prompt(self, tokens: Tensor) -> State:
        """Give the state that a forward pass leaves."""
        _, state = self.model(tokens, return_state=True)
        left: State = state
        return left

    def step(self, u_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one token."""
        y, state = self.model(u_t, state, return_state=True)
        return y, state
