"""Gradients as a mapping from the parameters' names to arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mamba2_bridge.intermediates import Intermediates
from mamba2_bridge.named import NativeArrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mamba2_bridge import _native

_S = TypeVar("_S")


class Gradients(NativeArrays, Generic[_S]):
    """What a backward pass gives: every parameter's gradient by name, in the model's order.

    Gradients stay native until they are read; reading gives copies.

    Attributes
    ----------
    input
        Gradient to the input, of its shape.
    state
        Gradients to the initial state (a `Mamba2State`; for a stack, a list of them); None where none was
        given.
    intermediates
        Gradients to the intermediates that ``record`` has recorded.

    Notes
    -----
    Two backward passes don't accumulate by themselves, unlike in PyTorch: add them with `add_`.
    """

    def __init__(self, native: _native.Gradients, unwrap: Callable[[list[_native.Mamba2State]], _S]) -> None:
        super().__init__(native, native.names())
        self._native = native
        self._unwrap = unwrap

    def __repr__(self) -> str:
        """List names and norms."""
        return f"Gradients({', '.join(f'{name}: |g|={norm:.3g}' for name, norm in self.norms().items())})"

    @property
    def input(self) -> NDArray[Any]:
        """A copy of the gradient to the input."""
        return self._native.input

    @property
    def state(self) -> _S | None:
        """Gradients to the initial state, None where none was given."""
        states = self._native.states
        return None if states is None else self._unwrap(states)

    @property
    def intermediates(self) -> Intermediates:
        """Gradients to the intermediates, as they arrived, by the names of the output's ``intermediates``.

        Only of those that the backward has reached: one without a gradient is missing, never zero. Empty
        after ``forward``, which records none.
        """
        return Intermediates(self._native.intermediates)

    def add_(self, other: Gradients[Any]) -> Gradients[_S]:
        """Add another backward's gradients of the same parameters in place; all others stay.

        Raises
        ------
        MissingGradientError, StateDictError, ShapeError, DTypeError
            Gradients of other parameters; nothing is added.
        TypeError
            ``other`` isn't `Gradients`.
        """
        self._native.add(native_gradients("other", other))
        return self

    def scale_(self, factor: float) -> Gradients[_S]:
        """Multiply the gradients of all parameters in place; all others stay."""
        self._native.scale(float(factor))
        return self

    def norms(self) -> dict[str, float]:
        """Euclidean norm of each parameter's gradient, summed in float64."""
        return self._native.norms()


def native_gradients(name: str, value: Any) -> _native.Gradients:
    """Give the native part of ``value`` if it is `Gradients`.

    Raises
    ------
    TypeError
        It is something else.
    """
    if isinstance(value, Gradients):
        return value._native
    raise TypeError(f"{name} must be Gradients, got {type(value).__name__}")
