"""How a side computes: the protocol, and what goes in and out of it.

A runner is anything that can load named parameters, run a case forward and backward and take optimizer steps.
Results are named as the golden cases name them: ``out``, ``final.conv_state``, ``final.ssm_state``,
``grad.param.<name>``, ``grad.u`` and, where the case has a state, ``grad.init.conv_state`` and
``grad.init.ssm_state``. A gradient that a backward did not reach is left out, never made zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.tolerances import DType

    Array = NDArray[Any]
    Results = dict[str, Array]


@dataclass(frozen=True)
class AdamW:
    """Settings of the optimizer. Weight decay leaves A_log, D, dt_bias, norms and biases alone."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01


class Forecaster(NamedTuple):
    """Sizes of a forecaster around the mixer."""

    d_input: int
    d_output: int
    n_layer: int


class Batch(NamedTuple):
    """Inputs of one optimizer step and what the model should give for them."""

    inputs: Array
    target: Array


@dataclass(frozen=True)
class Problem:
    """A short training run by mean squared error, one optimizer step a batch.

    Attributes
    ----------
    name
        What reports call it.
    config
        Keywords of Mamba2Config.
    forecaster
        The forecaster that the mixer is part of; None: the mixer alone.
    params
        Every parameter before the first step.
    batches
        One for each step.
    optimizer
        Its settings.
    """

    name: str
    config: Mapping[str, Any]
    forecaster: Forecaster | None
    params: Mapping[str, Array]
    batches: Sequence[Batch]
    optimizer: AdamW


class Step(NamedTuple):
    """One optimizer step: the loss that it started from, and every parameter after it."""

    loss: float
    params: Results


class Runner(Protocol):
    """A side of the comparison."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def run(self, case: Case, dtype: DType) -> Results:
        """Forward and backward over the whole sequence."""

    def run_steps(self, case: Case, dtype: DType) -> Results:
        """Go through the sequence token by token: ``step.out``, ``step.conv_state``, ``step.ssm_state``."""

    def train(self, problem: Problem, dtype: DType) -> Iterator[Step]:
        """Take the problem's optimizer steps one by one."""
