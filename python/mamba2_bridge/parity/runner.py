"""How a side computes: the one class to write for a model of any framework.

docs/parity.md shows one written for a model of one's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mamba2_bridge.parity.cases import Arrays, Batch, Case, DType
    from mamba2_bridge.parity.stages import Stage


@dataclass(frozen=True)
class Feed:
    """What intermediate tensors are replaced by, so that each stage starts from given inputs.

    Attributes
    ----------
    values
        What goes on in forward in place of what the stage before has made.
    gradients
        What goes back in backward in place of what has arrived.
    """

    values: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)


class Runner(ABC):
    """A side of the comparison: `load`, then for each batch `forward`, `backward` and `step`.

    Whatever a method returns is a mapping of names to arrays of the case's dtype, which may make an array
    only when it is read. What is not there is left out, never made zero.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What reports call it."""

    @abstractmethod
    def load(self, case: Case, dtype: DType) -> None:
        """Build the model in ``dtype``, with exactly the case's parameters.

        Parameters
        ----------
        case
            In fp64; `Case.astype` gives it in ``dtype``.
        dtype
            Of the model.
        """

    @abstractmethod
    def forward(self, batch: Batch, feed: Feed | None = None) -> Arrays:
        """Compute everything from inputs to outputs.

        Parameters
        ----------
        batch
            In the model's dtype.
        feed
            Replacements for some of `intermediates`; what is returned by those names is still what was made.

        Returns
        -------
        Mapping
            Intermediate tensors and outputs by name, in forward order; with a target ``loss``, a scalar in
            fp64, too.
        """

    @abstractmethod
    def backward(self) -> Arrays:
        """Go back from the last `forward`; from nowhere, where the batch has neither target nor upstream.

        Returns
        -------
        Mapping
            Gradients by the names of inputs, of intermediate tensors, and of parameters after ``param.``.
        """

    def step(self) -> Arrays:
        """Take an optimizer step with the gradients of the last `backward`; only cases with an optimizer ask.

        Returns
        -------
        Mapping
            Every parameter after ``param.``; and where they can be had, AdamW's moments after ``exp_avg.``
            and ``exp_avg_sq.``, and what the model keeps beside parameters after ``buffer.``.
        """
        raise ConfigError(f"{self.name} takes no optimizer steps: compare it in a case without an optimizer")

    @property
    def intermediates(self) -> Sequence[str]:
        """Names of the tensors between inputs and outputs that the last `forward` gave."""
        return ()

    @property
    def feeds(self) -> bool:
        """Whether `forward` takes a feed."""
        return False

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """Tell which stage makes and takes which tensor.

        Those that the reference tells count, or if it tells none, those of the candidate. Where neither does,
        each tensor is taken for a stage of its own that starts from the one before.

        Parameters
        ----------
        names
            What `forward` gave, in its order. Each of them, but for the loss, has a stage that makes it.

        Returns
        -------
        sequence of Stage
            In forward order; empty where it isn't known.
        """
        del names
        return ()
