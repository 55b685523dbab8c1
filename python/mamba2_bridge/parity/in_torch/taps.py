"""Intermediate tensors of torch's graphs: looked at, and replaced by others, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mamba2_bridge.parity.cases import Array
    from mamba2_bridge.parity.runner import Feed


class Cut(NamedTuple):
    """Where a graph is cut in two.

    Attributes
    ----------
    made
        What the part before made.
    given
        What the part after starts from; the gradient to it is the one that arrives.
    gradient
        What the backward of the part before starts from.
    """

    made: Tensor
    given: Tensor
    gradient: Tensor


class Taps:
    """Records the tensors that go through it and the gradients that come back.

    Parameters
    ----------
    feed
        What goes on in their place. Where it has a value and a gradient, the graph is cut there: what is
        wrong on one side doesn't reach the other.
    """

    def __init__(self, feed: Feed | None = None) -> None:
        self.values: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}
        self.anchors: list[Tensor] = []
        self.cuts: dict[str, Cut] = {}
        self.fed_values = _tensors({} if feed is None else feed.values)
        self.fed_gradients = _tensors({} if feed is None else feed.gradients)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Record a tensor; return what goes on."""
        self.values[name] = tensor.detach().clone()  # what comes next may work in place
        value = self.fed_values.get(name)
        if not torch.is_grad_enabled():
            return tensor if value is None else value
        if value is not None and name in self.fed_gradients:
            given = value.clone().requires_grad_()
            self.cuts[name] = Cut(tensor, given, self.fed_gradients[name])
            return given.clone()  # a leaf could not be worked on in place
        # Asking for an anchor's gradient makes one arrive even where the tensor was cut from the graph.
        anchor = torch.zeros((), dtype=tensor.dtype, requires_grad=True)
        self.anchors.append(anchor)
        passed: Tensor = _Tap.apply(tensor, anchor, name, self)
        return passed


class _Tap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, anchor: Tensor, name: str, taps: Taps) -> Tensor:
        del anchor
        ctx.name, ctx.taps = name, taps
        return taps.fed_values.get(name, tensor).clone()  # a view could not be worked on in place

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        taps: Taps = ctx.taps
        taps.gradients[ctx.name] = grad.detach().clone()
        return grad, None, None, None


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.tensor(array) for name, array in arrays.items()}
