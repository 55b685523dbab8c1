"""What is compared: named parameters and batches of inputs, in numpy, for whichever framework runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mamba2_bridge.parity.lazy import LazyArrays, mapped
from mamba2_bridge.parity.patterns import fits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

Array = NDArray[Any]
Arrays = Mapping[str, Array]
DType = Literal["float32", "float64"]


@dataclass(frozen=True)
class AdamW:
    """Settings of the optimizer.

    Attributes
    ----------
    undecayed
        Names of parameters that weight decay leaves alone, or what comes last in them, after a dot; those of
        a Mamba-2 where nothing is said.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    undecayed: tuple[str, ...] = ("A_log", "D", "dt_bias", "norm.weight", "norm_f.weight", "bias")

    def decays(self, name: str) -> bool:
        """Whether weight decay falls on a parameter."""
        return not any(name == last or name.endswith(f".{last}") for last in self.undecayed)


@dataclass(frozen=True)
class Batch:
    """Inputs of one forward pass, and where its backward starts.

    Attributes
    ----------
    inputs
        What goes in, by name. Gradients to floating point inputs are compared; integers are ids.
    upstream
        Gradients to outputs, by the outputs' names; those that are absent are zeros.
    target
        What the first output should be: the loss is the mean squared error, and the backward starts there.
        None: it starts at `upstream`, or where there is none, nothing goes back.
    """

    inputs: Arrays
    upstream: Arrays = field(default_factory=dict)
    target: Array | None = None

    @property
    def starts_backward(self) -> bool:
        """Whether it says where a backward starts."""
        return self.target is not None or len(self.upstream) > 0

    def astype(self, dtype: DType) -> Self:
        """Return the same batch with every floating point array in ``dtype``."""
        return replace(
            self,
            inputs=cast(self.inputs, dtype),
            upstream=cast(self.upstream, dtype),
            target=None if self.target is None else _cast(self.target, dtype),
        )


@dataclass(frozen=True)
class Case:
    """One model, and what it is to compute.

    Attributes
    ----------
    name
        What reports call it.
    params
        Every parameter by the reference's name, in either precision; those of a large model may be made when
        they are read.
    batches
        The first is compared tensor by tensor; with an `optimizer` each of them is a step.
    config
        What runners build their model from; its keys are theirs to agree on. Mamba-2's runners take the
        keywords of Mamba2Config, and with ``n_layer``, ``d_input`` and ``d_output`` a forecaster.
    optimizer
        Settings of the optimizer that takes a step after each batch; None: no steps.
    by_token
        Whether sequences go in one token at a time, without gradients.
    untrained
        Names or patterns (``*``) of parameters that have no gradient. Of every other one at least one side
        must tell a gradient: where neither does, nothing would be compared.
    """

    name: str
    params: Arrays
    batches: Sequence[Batch]
    config: Mapping[str, Any] = field(default_factory=dict)
    optimizer: AdamW | None = None
    by_token: bool = False
    untrained: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def batch(self) -> Batch:
        """The first batch."""
        return self.batches[0]

    @property
    def once(self) -> Self:
        """The same case without optimizer steps: its first batch alone."""
        return replace(self, batches=[self.batch], optimizer=None)

    @property
    def goes_back(self) -> bool:
        """Whether there is a backward: without target and upstream gradients there is forward alone."""
        return not self.by_token and self.batch.starts_backward

    @property
    def trained(self) -> list[str]:
        """Names of the parameters that have gradients."""
        return [name for name in self.params if not any(fits(name, pattern) for pattern in self.untrained)]

    def astype(self, dtype: DType) -> Self:
        """Return the same case with every floating point array in ``dtype``."""
        return replace(
            self,
            params=cast(self.params, dtype),
            batches=[batch.astype(dtype) for batch in self.batches],
        )


def cast(arrays: Arrays, dtype: DType) -> Arrays:
    """Copy arrays, floating point ones in ``dtype``; what is lazy stays lazy."""
    if isinstance(arrays, LazyArrays):
        return mapped(partial(_cast, dtype=dtype), arrays)
    return {name: _cast(array, dtype) for name, array in arrays.items()}


def _cast(array: Array, dtype: DType) -> Array:
    array = np.asarray(array)
    return array.astype(dtype if np.issubdtype(array.dtype, np.floating) else array.dtype.newbyteorder("="))
