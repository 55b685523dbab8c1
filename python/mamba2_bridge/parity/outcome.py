"""What a side makes of a case: computed by a runner, or read from an artifact."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.cases import cast
from mamba2_bridge.parity.measures import relative_error
from mamba2_bridge.parity.runner import Feed
from mamba2_bridge.parity.validity import check_case, check_gradients, check_stages, check_start

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mamba2_bridge.parity.cases import Array, Arrays, Batch, Case, DType
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.stages import Stage

GRAD = "grad."
"""What names of gradients start with in reports."""


@dataclass(frozen=True)
class Outcome:
    """What a side made of a case.

    Attributes
    ----------
    name
        The side's.
    dtype
        Of every array but losses and ids.
    forward
        Intermediate tensors, outputs and loss, in forward order.
    backward
        Gradients by the names of what they are to.
    steps
        What each optimizer step left, and the loss it started from; made when it is asked for, once, and read
        before the next.
    intermediates
        Names of the tensors in `forward` that lie between inputs and outputs.
    stages
        What makes and takes what; empty where that isn't known.
    own_losses
        What the side loses in fp32, by name, gradients' after ``grad.``.
    trained
        Parameters of which a side that goes backward must tell gradients, and one that takes steps, values.
    """

    name: str
    dtype: DType
    forward: Arrays
    backward: Arrays
    steps: Iterable[Arrays] = ()
    intermediates: Sequence[str] = ()
    stages: Sequence[Stage] = ()
    own_losses: Mapping[str, float] = field(default_factory=dict)
    trained: Collection[str] = ()


def outcome_of(runner: Runner, case: Case, dtype: DType, feed: Feed | None = None) -> Outcome:
    """Load a case and run it, see `run`."""
    check_case(case)
    load(runner, case, dtype)
    return run(runner, case, dtype, feed)


def load(runner: Runner, case: Case, dtype: DType) -> None:
    """Let a runner load a case of its own, which it may change."""
    runner.load(case.astype("float64"), dtype)


def run(runner: Runner, case: Case, dtype: DType, feed: Feed | None = None) -> Outcome:
    """Run a case that was loaded in ``dtype``: forward and backward now, steps when they are asked for."""
    case = case.astype(dtype)
    if feed is not None:
        feed = Feed(cast(feed.values, dtype), cast(feed.gradients, dtype))
    forward = runner.forward(case.batch, feed)
    check_start(case, case.batch, runner, list(forward))
    backward = {} if case.by_token else runner.backward()
    check_gradients(case, runner, list(backward))
    steps = _steps(runner, case, forward) if case.optimizer is not None and feed is None else ()
    stages = runner.stages(list(forward))
    check_stages(runner, stages, list(forward))
    return Outcome(
        runner.name,
        dtype,
        forward,
        backward,
        steps,
        tuple(runner.intermediates),
        stages,
        trained=case.trained if case.goes_back else (),
    )


def _steps(runner: Runner, case: Case, first: Arrays) -> Iterator[Arrays]:
    """Take a step after each batch; the first has been through forward and backward already."""
    forward = first
    for number, batch in enumerate(case.batches):
        if number > 0:
            forward = runner.forward(batch)
            check_start(case, batch, runner, list(forward))
            runner.backward()
        loss = {"loss": forward["loss"]} if "loss" in forward else {}
        yield {**loss, **runner.step()}


def held(outcome: Outcome) -> Outcome:
    """Copy every array now: the runner, or another with the same buffers, may go on to something else."""
    return replace(
        outcome,
        forward=_copied(outcome.forward),
        backward=_copied(outcome.backward),
        steps=[_copied(step) for step in outcome.steps],
    )


def _copied(arrays: Arrays) -> dict[str, Array]:
    return {name: np.array(array) for name, array in arrays.items()}


_REPEATABLE = 1e-9
"""What two runs of one side in fp64 may differ by: sums in another order, but nothing random."""


def must_repeat(runner: Runner, case: Case, want: Outcome) -> None:
    """Check that a runner makes the same of a case again.

    Parameters
    ----------
    runner
        The reference.
    case
        What it computes.
    want
        What it made of it in fp64.

    Raises
    ------
    ConfigError
        It doesn't: how it differs from itself would be taken for what fp32 loses, and excuse the candidate.
    """
    again = outcome_of(runner, case.once, "float64")
    for of_want, of_again in ((want.forward, again.forward), (want.backward, again.backward)):
        for name, first in of_want.items():
            second = of_again.get(name)
            if second is None or second.shape != first.shape:
                raise ConfigError(f"{case.name}: {want.name} gave {name} in one run and not in the next")
            error = relative_error(second, first)
            if math.isfinite(error) and error > _REPEATABLE:
                raise ConfigError(
                    f"{case.name}: {want.name} isn't repeatable: {name} differs by {error:.1e} from one run "
                    f"to the next; is there something random in it, or kept from the last call?"
                )


DRAWS = 3
"""Runs that tell what fp32 loses. Of one alone, a lucky one would pass for the tensor's condition."""


def own_losses(
    runner: Runner,
    case: Case,
    feed: Feed | None = None,
    draws: int = DRAWS,
    hold: Callable[[Outcome], Outcome] = held,
) -> dict[str, float]:
    """Tell what a runner loses in fp32: each tensor's relative error, the worst of some draws.

    The draws differ in the scale of inputs and feed, by so little that what cancels still cancels. Where fp32
    isn't finite the loss is 0, the strict choice: a reference that overflows excuses nothing.

    Parameters
    ----------
    runner
        Whose losses they are.
    case
        What it computes.
    feed
        What its stages are fed.
    draws
        Pairs of runs.
    hold
        Keeps what the run in fp64 gave while the same runner runs in fp32.
    """
    losses: dict[str, float] = {}
    once = case.once
    for draw in range(draws):
        factor = 1 + draw / 2**18
        scaled = replace(once, batches=[_scaled(once.batch, factor)])
        fed = None if feed is None else replace(feed, values=_times(feed.values, factor))
        double = hold(outcome_of(runner, scaled, "float64", fed))
        single = outcome_of(runner, scaled, "float32", fed)
        for prefix, of_double, of_single in (
            ("", double.forward, single.forward),
            (GRAD, double.backward, single.backward),
        ):
            for name, want in of_double.items():
                got = of_single.get(name)
                same = got is not None and got.shape == want.shape
                loss = relative_error(got, want) if same and got is not None else 0.0
                losses[prefix + name] = max(
                    losses.get(prefix + name, 0.0), loss if math.isfinite(loss) else 0.0
                )
    return losses


def _scaled(batch: Batch, factor: float) -> Batch:
    """Scale floating point inputs; they stay exact in fp32."""
    inputs = _times(batch.inputs, factor)
    return replace(batch, inputs=cast(cast(inputs, "float32"), "float64"))


def _times(arrays: Arrays, factor: float) -> dict[str, Array]:
    """Scale floating point arrays."""
    return {
        name: array * factor if np.issubdtype(array.dtype, np.floating) else array
        for name, array in arrays.items()
    }
