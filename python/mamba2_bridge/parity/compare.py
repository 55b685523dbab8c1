"""What equal means: one result a tensor, and every way of not being there is a failure.

A candidate, in either dtype, is always held against the reference in fp64. The reference in fp32 only says
how far off a tensor may be (see `tolerances`).
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mamba2_bridge.exceptions import CheckpointError, ConfigError
from mamba2_bridge.parity.cases import Case
from mamba2_bridge.parity.lazy import subset
from mamba2_bridge.parity.measures import difference
from mamba2_bridge.parity.outcome import DRAWS, GRAD, held, load, must_repeat, outcome_of, own_losses, run
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.result import TensorResult
from mamba2_bridge.parity.runner import Feed
from mamba2_bridge.parity.stages import MODEL, PARAM, backward_order, forward_order, in_order, recorded
from mamba2_bridge.parity.tolerances import DEFAULT, quantity_of
from mamba2_bridge.parity.validity import check_case, check_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from mamba2_bridge.parity.cases import Array, Arrays, DType
    from mamba2_bridge.parity.outcome import Outcome
    from mamba2_bridge.parity.result import Mode, Phase
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.tolerances import Policy

OPTIMIZER = "optimizer"
"""The stage of what an optimizer step leaves."""

PARAMETERS = "parameters"
"""The stage of a candidate that can't load a case's parameters."""

EVERYTHING = "every tensor"
"""What a candidate that raises fails in."""


def compare(
    reference: Runner,
    candidate: Runner,
    cases: Case | Iterable[Case],
    *,
    dtypes: Sequence[DType] = ("float64", "float32"),
    isolated: bool = True,
    policy: Policy = DEFAULT,
    stop_at_first: bool = False,
    draws: int = DRAWS,
    note: Callable[[str], None] = lambda _: None,
) -> ParityReport:
    """Run cases on both sides and compare every tensor.

    Optimizer steps are compared in fp64 alone: in fp32 Adam blows rounding up wherever a gradient is small.

    Parameters
    ----------
    reference
        What is held to be right.
    candidate
        What is looked at. An exception of its own is a failure that carries its message; one of the reference
        is raised.
    cases
        What both compute.
    dtypes
        The candidate's.
    isolated
        Whether to run the candidate once more with each stage fed the reference's tensors, where it can, so
        that one early error doesn't paint everything red.
    policy
        The tolerances.
    stop_at_first
        Whether to end at the first tensor that fails.
    draws
        Runs that tell what the reference itself loses in fp32; take more where tensors are few numbers.
    note
        Called with a line about what comes next.

    Raises
    ------
    ConfigError
        A case that would compare less than it seems to, or two of one name; before anything is run where the
        case tells it by itself.
    """
    cases = [cases] if isinstance(cases, Case) else list(cases)
    dtypes = check_dtypes(dtypes)
    for case in cases:
        check_case(case)
    names = [case.name for case in cases]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"names of cases must differ, got more than one {', '.join(twice)}")
    results: list[TensorResult] = []
    for case in cases:
        note(case.name)
        for result in _case(reference, candidate, case, dtypes, isolated, policy, draws):
            results.append(result)
            if stop_at_first and not result.passed:
                break
        if stop_at_first and results and not results[-1].passed:
            break
    return ParityReport(candidate.name, reference.name, [case.name for case in cases], results)


def _case(
    reference: Runner,
    candidate: Runner,
    case: Case,
    dtypes: Sequence[DType],
    isolated: bool,
    policy: Policy,
    draws: int,
) -> Iterator[TensorResult]:
    want = held(outcome_of(reference, case, "float64"))
    must_repeat(reference, case, want)
    losses = own_losses(reference, case, draws=draws)
    want = replace(want, own_losses=losses)

    def fed_losses(feed: Feed) -> Mapping[str, float]:
        return own_losses(reference, case, feed, draws) if reference.feeds else losses

    yield from against(want, candidate, case, fed_losses, dtypes=dtypes, isolated=isolated, policy=policy)


def against(
    want: Outcome,
    candidate: Runner,
    case: Case,
    fed_losses: Callable[[Feed], Mapping[str, float]],
    *,
    dtypes: Sequence[DType],
    isolated: bool = True,
    policy: Policy = DEFAULT,
) -> Iterator[TensorResult]:
    """Run a candidate in each dtype and compare it with what the reference made, see `compare`.

    Parameters
    ----------
    want
        The reference's outcome.
    candidate
        What is looked at.
    case
        What both compute.
    fed_losses
        What the reference loses in fp32 where its stages are fed so.
    dtypes, isolated, policy
        As for `compare`.
    """
    once = case.once
    losses: Mapping[str, float] | None = None
    for dtype in dtypes:
        if dtype == "float64":
            ran = yield from _attempt(candidate, case, dtype, want, None, policy)
        else:
            ran = yield from _attempt(candidate, once, dtype, replace(want, steps=()), None, policy)
        if not (ran and isolated and candidate.feeds):
            continue
        mine = set(candidate.intermediates)
        common = [name for name in want.intermediates if name in mine]
        if not common:
            continue
        back = [name for name in common if name in want.backward]
        feed = Feed(subset(want.forward, common), subset(want.backward, back))
        if losses is None:
            losses = fed_losses(feed)
        yield from _attempt(candidate, once, dtype, replace(want, own_losses=losses, steps=()), feed, policy)


def _attempt(
    candidate: Runner, case: Case, dtype: DType, want: Outcome, feed: Feed | None, policy: Policy
) -> Generator[TensorResult, None, bool]:
    """Run the candidate and compare; tell whether it ran to the end."""
    mode: Mode = "accumulated" if feed is None else "isolated"
    stage, step = PARAMETERS, 0

    def counted(steps: Iterable[Arrays]) -> Iterator[Arrays]:
        nonlocal stage, step
        stage, step = OPTIMIZER, 1
        for arrays in steps:
            yield arrays
            step += 1

    try:
        load(candidate, case, dtype)
        stage = MODEL
        got = run(candidate, case, dtype, feed)
        got = replace(got, steps=counted(got.steps))
        yield from compare_outcomes(case.name, want, got, mode=mode, policy=policy)
    except CheckpointError:  # a damaged artifact, which is no fault of the candidate
        raise
    except Exception as error:  # whatever it is, it is a failure, and the other cases are worth running
        phase: Phase = "step" if step > 0 else "forward"
        problem = f"{type(error).__name__}: {error} ({_place(error)})"
        yield TensorResult(
            case.name, dtype, mode, phase, step, EVERYTHING, stage, "value", None, problem=problem
        )
        return False
    return True


_PACKAGE = Path(__file__).parents[1]


def _place(error: Exception) -> str:
    """Tell where an exception was raised: in the innermost function that isn't an installed package's."""
    frames = list(traceback.extract_tb(error.__traceback__))
    own = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename and not Path(frame.filename).is_relative_to(_PACKAGE)
    ]
    frame = (own or frames)[-1]
    return f"in {frame.name}, {Path(frame.filename).name} line {frame.lineno}"


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
