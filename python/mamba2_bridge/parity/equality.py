"""What equal means: one result a tensor, and every way of not being there is a failure.

A candidate, in either dtype, is always held against the reference in fp64. The reference in fp32 only says
how far off a tensor may be (see `tolerances`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from mamba2_bridge.parity.measures import difference
from mamba2_bridge.parity.outcome import GRAD
from mamba2_bridge.parity.result import TensorResult
from mamba2_bridge.parity.stages import (
    MODEL,
    OPTIMIZER,
    PARAM,
    backward_order,
    forward_order,
    in_order,
    recorded,
)
from mamba2_bridge.parity.tolerances import DEFAULT, quantity_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mamba2_bridge.parity.cases import Array, Arrays, DType
    from mamba2_bridge.parity.outcome import Outcome
    from mamba2_bridge.parity.result import Mode, Phase
    from mamba2_bridge.parity.tolerances import Policy


def compare_outcomes(
    case: str, want: Outcome, got: Outcome, *, policy: Policy = DEFAULT, mode: Mode = "accumulated"
) -> Iterator[TensorResult]:
    """Compare what two sides made of a case, tensor by tensor, in the order in which they were made.

    Intermediate tensors that only one side tells of are left out; of everything else, what one side lacks is
    a failure.

    Parameters
    ----------
    case
        What the results belong to.
    want, got
        The reference's outcome, and the candidate's.
    policy
        The tolerances.
    mode
        What results say of how the candidate was run.
    """
    alone = _alone(want, got) | _alone(got, want)
    names = [name for name in want.forward if name not in alone]
    stages = recorded(want.stages or got.stages or in_order(names, _inputs(want)), names)
    yield from _compared(
        forward_order(stages, _both(want.forward, got.forward, alone)),
        want.forward,
        got.forward,
        _Blank(case, got.dtype, mode, "forward", 0, policy, want.dtype, want.own_losses),
    )
    yield from _compared(
        backward_order(stages, _both(want.backward, got.backward, alone, want.trained)),
        want.backward,
        got.backward,
        _Blank(case, got.dtype, mode, "backward", 0, policy, want.dtype, want.own_losses),
    )
    settled = True  # what the steps before have left is right
    for step, (of_want, of_got) in enumerate(zip_longest(want.steps, got.steps), start=1):
        blank = _Blank(case, got.dtype, mode, "step", step, policy, want.dtype, {})
        if of_want is None or of_got is None:
            which = "missing" if of_got is None else "unexpected"
            yield blank.result("every parameter", OPTIMIZER, (), which)
            return
        names = _both(of_want, of_got, _not_told(of_want, of_got) | _moved_at_random(want), want.trained)
        order = [(name, MODEL if name == "loss" and settled else OPTIMIZER) for name in names]
        for result in _compared(order, of_want, of_got, blank):
            settled = settled and result.passed
            yield result


UNTOLD = ("exp_avg.", "exp_avg_sq.", "buffer.")
"""What names of a step's results start with beside ``param.``; a side need not tell of a kind at all."""


def _not_told(want: Arrays, got: Arrays) -> set[str]:
    """Moments and buffers of a kind that one side tells nothing of."""
    told = [{kind for kind in UNTOLD if any(name.startswith(kind) for name in side)} for side in (want, got)]
    untold = tuple(told[0] ^ told[1])
    return {name for name in [*want, *got] if name.startswith(untold)}


def _moved_at_random(want: Outcome) -> set[str]:
    """Name what AdamW makes of gradients that are nothing but rounding: fp32 has no digit of them right.

    It divides a gradient by its size: such a parameter moves by what happens to be left, whoever computes.
    """
    noise = [name for name in want.trained if want.own_losses.get(f"{GRAD}{PARAM}{name}", 0.0) > 1.0]
    return {f"{kind}{name}" for name in noise for kind in (PARAM, *UNTOLD)}


class _Blank:
    """What the results of one phase share."""

    def __init__(
        self,
        case: str,
        dtype: DType,
        mode: Mode,
        phase: Phase,
        step: int,
        policy: Policy,
        want_dtype: DType,
        own_losses: Mapping[str, float],
    ) -> None:
        self.case, self.dtype, self.mode, self.phase, self.step = case, dtype, mode, phase, step
        self.want_dtype = want_dtype
        self.policy, self.own_losses = policy, own_losses

    def result(
        self, name: str, stage: str, shape: tuple[int, ...], problem: str | None = None
    ) -> TensorResult:
        """Return the result of a tensor that hasn't been measured yet."""
        tensor = f"{GRAD}{name}" if self.phase == "backward" else name
        # Before the first optimizer step the loss is one of the models alone.
        stepped = self.phase == "step" and not (name == "loss" and self.step == 1)
        quantity = "optimizer step" if stepped else quantity_of(tensor)
        tolerance = self.policy.find(tensor, quantity, self.dtype)
        own_loss = self.own_losses.get(tensor, 0.0)
        if tolerance is None and problem is None:
            problem = f"no tolerance is for it ({quantity} in {self.dtype})"
        return TensorResult(
            self.case,
            self.dtype,
            self.mode,
            self.phase,
            self.step,
            tensor,
            stage,
            quantity,
            None if tolerance is None else tolerance.bound(own_loss),
            own_loss,
            problem=problem,
            shape=shape,
        )


def _inputs(outcome: Outcome) -> list[str]:
    """Names of what gradients go to that is neither made on the way nor a parameter."""
    made = set(outcome.forward)
    return [name for name in outcome.backward if name not in made and not name.startswith(PARAM)]


def _alone(one: Outcome, other: Outcome) -> set[str]:
    """Intermediate tensors of one side that the other knows nothing of."""
    known = {*other.forward, *other.backward, *other.intermediates}
    return {name for name in one.intermediates if name in one.forward and name not in known}


def _both(want: Arrays, got: Arrays, without: Collection[str], params: Collection[str] = ()) -> list[str]:
    """Names of either, those of ``want`` in its order first, and of parameters that must be among them."""
    expected = [f"{PARAM}{name}" for name in params]
    return [name for name in dict.fromkeys([*want, *got, *expected]) if name not in without]


def _compared(
    order: Sequence[tuple[str, str]], want: Arrays, got: Arrays, blank: _Blank
) -> Iterator[TensorResult]:
    for name, stage in order:
        of_want, of_got = _array(want.get(name)), _array(got.get(name))
        problem = _problem(name, blank.dtype, blank.want_dtype, of_want, of_got)
        shape = () if of_want is None else of_want.shape
        result = blank.result(name, stage, shape, problem)
        if problem is None and of_want is not None and of_got is not None:
            result = replace(result, difference=difference(of_got, of_want, result.bound or 0.0))
            if of_want.dtype.kind in "iub" and result.passed and not np.array_equal(of_got, of_want):
                result = replace(result, problem="whole numbers differ by less than float64 tells")
        yield result


def _array(value: Array | None) -> Array | None:
    return None if value is None else np.asanyarray(value)


def _problem(name: str, dtype: DType, want_dtype: DType, want: Array | None, got: Array | None) -> str | None:
    if want is None:
        return f"unexpected, of shape {got.shape}" if got is not None else "missing, in the reference too"
    if got is None:
        return "missing"
    return _unlike(name, dtype, want_dtype, want, got)


def _unlike(name: str, dtype: DType, want_dtype: DType, want: Array, got: Array) -> str | None:
    """Tell why two arrays that are there are none of one kind."""
    if isinstance(got, np.ma.MaskedArray) or isinstance(want, np.ma.MaskedArray):
        return "a masked array: what is behind the mask can't be compared"
    floats = np.issubdtype(want.dtype, np.floating)
    if name != "loss" and floats and want.dtype != np.dtype(want_dtype):
        return f"the reference's dtype {want.dtype}, must be {want_dtype}"
    if name != "loss" and got.dtype != (np.dtype(dtype) if floats else want.dtype):
        return f"dtype {got.dtype}, must be {dtype if floats else want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, must be {want.shape}"
    return None
