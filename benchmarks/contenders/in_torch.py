"""What the contenders in PyTorch share: eager or compiled, forward, backward and step."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from benchmarks.contenders.contender import Contender, UnavailableError
from benchmarks.parameters import inputs, parameters, prompt

if TYPE_CHECKING:
    from benchmarks.parameters import Arrays
    from benchmarks.works import Work

_WAKING_SIZE = 256


class TorchContender(Contender):
    """A model in PyTorch, with the parameters that all contenders have.

    Parameters
    ----------
    work, threads, device
        As for every contender. Tensors are on the device, and stay there.
    compiled
        Whether `torch.compile` makes it, for the work's shapes alone.
    """

    def __init__(self, work: Work, threads: int, device: str, compiled: bool = False) -> None:
        super().__init__(work, threads, device)
        torch.set_num_threads(threads)
        torch.set_default_device(device)
        self.compiled = compiled
        if compiled:
            _need_compiler()
        self.dtype: torch.dtype = getattr(torch, work.dtype)
        u, dy = inputs(work)
        self.u, self.dy = torch.from_numpy(u).to(device), torch.from_numpy(dy).to(device)
        self.u.requires_grad_(work.mode == "forward+backward")
        self.model = self.build().to(device, self.dtype)
        values = {self.their_name(name): torch.from_numpy(value) for name, value in parameters(work).items()}
        self.model.load_state_dict(values)
        self.run: Any = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.run_step: Any = torch.compile(self.step, dynamic=False) if compiled else self.step
        if work.mode == "step":
            with torch.inference_mode():
                self.state = self.read_prompt(self._prompt())
        small = torch.ones(_WAKING_SIZE, _WAKING_SIZE)
        self.small = small, small, torch.empty_like(small)

    @abstractmethod
    def build(self) -> nn.Module:
        """Make the work's model: (batch, seqlen, width) -> the output."""

    def their_name(self, name: str) -> str:
        """Name in this model of a parameter that `benchmarks.parameters` names."""
        return name

    @abstractmethod
    def read_prompt(self, tokens: Tensor) -> Any:
        """State after the tokens (batch, length, width)."""

    @abstractmethod
    def step(self, u_t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Process one token (batch, 1, width): its output and the next state."""

    def compile(self) -> None:
        """Run once, which compiles; the state stays where the prompt left it."""
        if not self.compiled:
            return
        if self.work.mode == "step":
            with torch.inference_mode():
                self.run_step(self.u, self.read_prompt(self._prompt()))
        else:
            self.call()
            self._forget_gradients()

    def call(self) -> Tensor:
        """Do the work, and wait for a GPU to have done it."""
        y = self._start()
        if self.u.is_cuda:
            torch.cuda.synchronize()
        return y

    def _start(self) -> Tensor:
        y: Tensor
        if self.work.mode == "forward+backward":
            self._forget_gradients()
            y = self.run(self.u)
            y.backward(self.dy)
            return y
        with torch.inference_mode():
            if self.work.mode == "forward":
                y = self.run(self.u)
            else:
                y, self.state = self.run_step(self.u, self.state)
            return y

    def outputs(self, result: Tensor) -> Arrays:
        """Give output and gradients."""
        y = result.detach().numpy(force=True)
        if self.work.mode != "forward+backward":
            return {"y": y.reshape(self.work.output_shape[0], -1) if self.work.mode == "step" else y}
        theirs = dict(self.model.named_parameters())
        named = {f"grad.{name}": theirs[self.their_name(name)].grad for name in parameters(self.work)}
        tensors = {"grad.input": self.u.grad, **named}
        return {"y": y, **{name: _array(name, tensor) for name, tensor in tensors.items()}}

    def wake_threads(self) -> None:
        """Multiply two small matrices."""
        a, b, out = self.small
        torch.mm(a, b, out=out)

    def _prompt(self) -> Tensor:
        return torch.from_numpy(prompt(self.work)).to(self.device)

    def _forget_gradients(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.u.grad = None


def _array(name: str, tensor: Tensor | None) -> Any:
    if tensor is None:
        raise RuntimeError(f"{name} was not computed")
    return tensor.numpy(force=True)


def _need_compiler() -> None:
    """Refuse torch.compile without the C++ compiler that it calls."""
    from torch._inductor import cpp_builder, exc  # noqa: PLC0415

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise UnavailableError(
            "torch.compile needs a C++ compiler: install g++, or name one in CXX"
        ) from error
