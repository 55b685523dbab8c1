"""Ours, as its users call it: from numpy arrays to numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mamba2_bridge as mb
from benchmarks.contenders.contender import Contender
from benchmarks.parameters import inputs, parameters, prompt
from benchmarks.sizes import MixerSize, StackSize

if TYPE_CHECKING:
    from benchmarks.parameters import Arrays
    from benchmarks.works import Work

_WAKING_TOKENS = 64


class Ours(Contender):
    """`mamba2_bridge`'s mixer or forecaster.

    Forward is ``m(u)``; forward and backward ``m.forward(u).backward(dy)``, whose gradients stay native until
    they are read, as PyTorch's stay tensors; a decode step ``m.step``.

    Parameters
    ----------
    work, threads, device
        As for every contender. On a GPU arrays are numpy's, too: each call takes them there and back.
    kernels
        ``"auto"`` or ``"composed"``.
    """

    def __init__(self, work: Work, threads: int, device: str, kernels: str) -> None:
        super().__init__(work, threads, device)
        mb.set_num_threads(threads)
        self.u, self.dy = inputs(work)
        self.model: Any
        options: Any = {"dtype": work.dtype, "device": device, "kernels": kernels}
        if isinstance(work.size, StackSize):
            self.model = mb.Mamba2Forecaster(_stack(work.size), **options)
        else:
            self.model = mb.Mamba2(_mixer(work.size), **options)
        self.model.load_state_dict(parameters(work))
        if work.mode == "step":
            self.state = self.model.forward(prompt(work)).state

    def call(self) -> Any:
        """Do the work."""
        if self.work.mode == "forward":
            return self.model(self.u)
        if self.work.mode == "step":
            y, self.state = self.model.step(self.u[:, 0], self.state)
            return y
        output = self.model.forward(self.u)
        return output, output.backward(self.dy)

    def outputs(self, result: Any) -> Arrays:
        """Give output and gradients."""
        if self.work.mode != "forward+backward":
            return {"y": result}
        output, gradients = result
        named = {f"grad.{name}": gradients[name] for name in gradients}
        return {"y": output.y, "grad.input": gradients.input, **named}

    def wake_threads(self) -> None:
        """Run a few tokens."""
        if self.work.mode == "step":
            self.call()
        else:
            self.model(self.u[:, :_WAKING_TOKENS])


def _mixer(size: MixerSize) -> mb.Mamba2Config:
    return mb.Mamba2Config(
        d_model=size.d_model,
        d_state=size.d_state,
        d_conv=size.d_conv,
        expand=size.expand,
        headdim=size.headdim,
        ngroups=size.ngroups,
    )


def _stack(size: StackSize) -> mb.Mamba2ForecasterConfig:
    return mb.Mamba2ForecasterConfig(
        mixer=_mixer(size.mixer), n_layer=size.n_layer, d_input=size.d_input, d_output=size.d_output
    )
