"""How one tensor of one case compares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mamba2_bridge.parity.cases import DType
    from mamba2_bridge.parity.measures import Difference

Mode = Literal["accumulated", "isolated"]
"""Each side goes its own way; or each stage of the candidate is fed the reference's tensors."""

Phase = Literal["forward", "backward", "step"]


@dataclass(frozen=True)
class TensorResult:
    """How one tensor of one case compares.

    Attributes
    ----------
    case, dtype, mode, phase
        Where it belongs.
    step
        Of the optimizer, from 1; 0 in other phases.
    tensor
        Its name; gradients' after ``grad.``.
    stage
        What has made it: in backward, the stage whose backward has.
    quantity
        What it is in the table of tolerances.
    bound
        The largest relative difference that is a pass; None: no tolerance is for it, which fails.
    own_loss
        Its noise floor: what the reference itself loses in fp32.
    difference
        How it differs; None where it could not be compared.
    problem
        Why it could not.
    shape
        Of the reference's tensor; of the candidate's where the reference has none.
    """

    case: str
    dtype: DType
    mode: Mode
    phase: Phase
    step: int
    tensor: str
    stage: str
    quantity: str
    bound: float | None
    own_loss: float = 0.0
    difference: Difference | None = None
    problem: str | None = None
    shape: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it was compared and differs by no more than the bound."""
        return self.problem is None and self.bound is not None and self.error <= self.bound

    @property
    def error(self) -> float:
        """The relative difference; infinite where it could not be compared."""
        return math.inf if self.difference is None else self.difference.relative

    @property
    def badness(self) -> float:
        """The error as a multiple of the bound: above 1 it fails."""
        if self.problem is not None or self.bound is None:
            return math.inf
        if self.error == 0.0:
            return 0.0
        return self.error / self.bound if self.bound > 0.0 else math.inf

    @property
    def noise(self) -> float:
        """The error as a multiple of what the reference itself loses in fp32; NaN where that is not known."""
        return self.error / self.own_loss if self.own_loss > 0.0 else math.nan

    @property
    def hint(self) -> str:
        """What the difference looks like, where it looks like something: a factor, a sign, zeros."""
        return "" if self.difference is None else _hint(self.difference)

    @property
    def element(self) -> str:
        """The tensor with the index of the element that differs most."""
        index = "" if self.difference is None or not self.difference.index else list(self.difference.index)
        return f"{self.tensor}{index}"

    @property
    def where(self) -> str:
        """Case, dtype and mode, and the step of an optimizer."""
        isolated = ", isolated" if self.mode == "isolated" else ""
        step = f", step {self.step}" if self.phase == "step" else ""
        return f"{self.case} in {self.dtype}{isolated}{step}"

    def __str__(self) -> str:
        element = f"{self.where}: {self.element}"
        if self.difference is None:
            return f"{element}: {self.problem}"
        values = f"{element}: got {self.difference.got!r}, want {self.difference.want!r}"
        if self.problem is not None:
            return f"{values}: {self.problem}"
        hint = f"; {self.hint}" if self.hint else ""
        return f"{values}; relative error {self.error:.3g}, {self.bound:.3g} allowed{hint}"


_CLOSE = 1e-3


def _hint(difference: Difference) -> str:
    if difference.cosine > 1 - _CLOSE and abs(difference.norm_ratio - 1) > _CLOSE:
        return f"{difference.norm_ratio:.4g} times what it should be"
    if difference.cosine < _CLOSE - 1:
        factor = "" if abs(difference.norm_ratio - 1) < _CLOSE else f" and {difference.norm_ratio:.4g} times"
        return f"its sign is flipped{factor}"
    if difference.norm_ratio == 0.0:
        return "all of it is zero"
    return ""
