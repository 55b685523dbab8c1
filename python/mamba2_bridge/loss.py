"""A loss, and the gradients it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mamba2_bridge.gradients import Gradients

if TYPE_CHECKING:
    from collections.abc import Callable

    from mamba2_bridge import _native

_S = TypeVar("_S")


class Loss(Generic[_S]):
    """A scalar made from an output, reduced and kept in float64.

    One backward, of the loss or of its output, consumes the graph.
    """

    def __init__(self, native: _native.Loss, unwrap: Callable[[list[_native.Mamba2State]], _S]) -> None:
        self._native = native
        self._unwrap = unwrap

    def item(self) -> float:
        """Give the value as a Python float."""
        return self._native.item()

    def __float__(self) -> float:
        """Give the value as a Python float."""
        return self.item()

    def __repr__(self) -> str:
        """Give the value."""
        return f"Loss({self.item()!r})"

    def backward(self) -> Gradients[_S]:
        """Gradients of the loss to every parameter, to the input and to the initial state.

        Raises
        ------
        GraphError
            A second backward, or parameters that have changed since the forward pass.
        MissingGradientError
            Parameters that were not reached, by name.
        """
        return Gradients(self._native.backward(), self._unwrap)
