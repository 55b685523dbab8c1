"""Both sides run on the same cases: the candidate in each dtype, and once more with its stages fed."""

from __future__ import annotations

import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import CheckpointError, ConfigError
from mamba2_bridge.parity.cases import Case
from mamba2_bridge.parity.equality import compare_outcomes
from mamba2_bridge.parity.lazy import subset
from mamba2_bridge.parity.outcome import DRAWS, held, load, must_repeat, outcome_of, own_losses, run
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.result import TensorResult
from mamba2_bridge.parity.runner import Feed
from mamba2_bridge.parity.stages import MODEL, OPTIMIZER
from mamba2_bridge.parity.tolerances import DEFAULT
from mamba2_bridge.parity.validity import check_case, check_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from mamba2_bridge.parity.cases import Arrays, DType
    from mamba2_bridge.parity.outcome import Outcome
    from mamba2_bridge.parity.result import Mode, Phase
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.tolerances import Policy

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
