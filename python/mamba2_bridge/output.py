"""What a forward pass gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mamba2_bridge.gradients import Gradients
from mamba2_bridge.intermediates import Intermediates
from mamba2_bridge.loss import Loss
from mamba2_bridge.states import one_state, state_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from mamba2_bridge import _native
    from mamba2_bridge._native import Mamba2State

_S = TypeVar("_S")


class _Output(ABC, Generic[_S]):
    """Output of a model, with the graph that one backward consumes. The graph goes away with it."""

    def __init__(self, native: _native.Output) -> None:
        self._native = native

    @property
    def y(self) -> NDArray[Any]:
        """A copy of the output."""
        return self._native.y

    @property
    def intermediates(self) -> Intermediates:
        """The intermediates that ``record`` has recorded, as they arrived; empty after ``forward``."""
        return Intermediates(self._native.intermediates)

    @staticmethod
    @abstractmethod
    def _unwrap(states: list[Mamba2State]) -> _S:
        """Give what the model's callers see of its native states."""

    def mse_loss(self, target: ArrayLike) -> Loss[_S]:
        """Mean squared error over all elements.

        Parameters
        ----------
        target
            Of ``y``'s shape and dtype.

        Returns
        -------
        Loss
            ``item()`` gives it as a Python float, reduced in float64; ``backward()`` gives `Gradients`.

        Raises
        ------
        ShapeError, DTypeError
            ``target`` isn't like ``y``.
        GraphError
            A backward was called before.
        """
        return Loss(self._native.mse_loss(target), self._unwrap)


class Mamba2Output(_Output["Mamba2State"]):
    """Output of a `Mamba2`.

    Attributes
    ----------
    y
        (batch, seqlen, d_model).
    state
        `Mamba2State` after the last token.
    intermediates
        What `Mamba2.record` has recorded, by name.
    """

    @property
    def state(self) -> Mamba2State:
        """The state after the last token."""
        return self._unwrap(self._native.states)

    def backward(self, dy: ArrayLike, dstate: Mamba2State | None = None) -> Gradients[Mamba2State]:
        """Vector-Jacobian product.

        Parameters
        ----------
        dy
            Upstream gradient of ``y``, of its shape and dtype.
        dstate
            Upstream gradient of ``state``; None: zeros.

        Returns
        -------
        Gradients
            Of every parameter, and to the input and the initial state.

        Raises
        ------
        ShapeError, DTypeError
            An upstream gradient that doesn't fit; the graph stays.
        GraphError
            A second backward, or parameters that have changed since the forward pass.
        MissingGradientError
            Parameters that were not reached, by name.
        """
        upstream = None if dstate is None else [one_state("dstate", dstate)]
        return Gradients(self._native.backward(dy, upstream), self._unwrap)

    @staticmethod
    def _unwrap(states: list[Mamba2State]) -> Mamba2State:
        return states[0]


class ForecasterOutput(_Output["list[Mamba2State]"]):
    """Output of a `Mamba2Forecaster`.

    Attributes
    ----------
    y
        (batch, d_output): the prediction from the last timestep.
    states
        One `Mamba2State` a layer, after the last token.
    intermediates
        What `Mamba2Forecaster.record` has recorded, by name.
    """

    @property
    def states(self) -> list[Mamba2State]:
        """The states after the last token, one a layer."""
        return self._native.states

    def backward(
        self, dy: ArrayLike, dstate: Sequence[Mamba2State] | None = None
    ) -> Gradients[list[Mamba2State]]:
        """Vector-Jacobian product; ``dstate`` is a list like ``states``. See `Mamba2Output.backward`."""
        upstream = None if dstate is None else state_list("dstate", dstate)
        return Gradients(self._native.backward(dy, upstream), self._unwrap)

    @staticmethod
    def _unwrap(states: list[Mamba2State]) -> list[Mamba2State]:
        return states
