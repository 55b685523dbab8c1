"""Assertions whose message says which tensor differs, where, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.equality import compare_outcomes
from mamba2_bridge.parity.outcome import GRAD, Outcome
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.tolerances import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike

    from mamba2_bridge.parity.cases import Case, DType
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.tolerances import Policy


def assert_parity(
    reference: Runner, candidate: Runner, cases: Case | Iterable[Case], **options: Any
) -> ParityReport:
    """Assert that two runners are one function with one set of gradients.

    Parameters
    ----------
    reference, candidate, cases, options
        As for `mamba2_bridge.parity.compare`.

    Returns
    -------
    ParityReport
        Of what passed.

    Raises
    ------
    ParityError
        Naming for each case the first wrong tensor, its index, both values, and the stage to look at.
    """
    __tracebackhide__ = True  # pytest then shows the caller
    report = compare(reference, candidate, cases, **options)
    report.raise_for_failures()
    return report


def assert_grads_close(
    got: Mapping[str, ArrayLike],
    want: Mapping[str, ArrayLike],
    dtype: DType = "float64",
    *,
    own_losses: Mapping[str, float] | None = None,
    policy: Policy = DEFAULT,
) -> None:
    """Assert that two sets of gradients have the same names and that every one is close.

    Parameters
    ----------
    got, want
        Gradients by parameter, ``got`` of ``dtype``; ``want`` rather in fp64.
    dtype
        Of what is tested.
    own_losses
        By parameter, what an implementation that is known to be good loses in fp32.
    policy
        The tolerances.

    Raises
    ------
    ParityError
        Naming each that is missing, unexpected, of another shape or dtype, or off, with index and values.
    """
    __tracebackhide__ = True
    sides = [{name: np.asarray(value) for name, value in side.items()} for side in (want, got)]
    losses = {f"{GRAD}{name}": loss for name, loss in (own_losses or {}).items()}
    of_want = Outcome("expected", "float64", {}, sides[0], own_losses=losses)
    of_got = Outcome("gradients", dtype, {}, sides[1])
    results = list(compare_outcomes("gradients", of_want, of_got, policy=policy))
    ParityReport("gradients", "expected", ["gradients"], results).raise_for_failures(every=True)
