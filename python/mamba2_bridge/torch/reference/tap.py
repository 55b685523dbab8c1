"""Places in the twin's forward passes where a caller may look at a tensor, or put another in its place."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Tap = Callable[[str, Tensor], Tensor]
"""Name of a tensor and the tensor, to what goes on in its place."""


def untapped(name: str, tensor: Tensor) -> Tensor:
    """Go on with the tensor itself."""
    del name
    return tensor


class Tapped(nn.Module):
    """A module whose forward sends intermediate tensors through its ``tap``, by names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tap: Tap = untapped


def set_tap(model: nn.Module, tap: Tap) -> None:
    """Send the intermediate tensors of a model and of all its parts through ``tap``, by their full names."""
    for prefix, module in model.named_modules():
        if isinstance(module, Tapped):
            module.tap = tap if prefix == "" else _within(prefix, tap)


def _within(prefix: str, tap: Tap) -> Tap:
    return lambda name, tensor: tap(f"{prefix}.{name}" if name else prefix, tensor)
