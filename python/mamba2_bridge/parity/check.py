"""The whole comparison of Mamba-2's models: every case in both dtypes, by token, and optimizer steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.mamba2_cases import by_token, forecaster_case, mixer_cases, noise_case
from mamba2_bridge.parity.training import co2_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.runner import Runner


def check_cases(seed: int = 0) -> list[Case]:
    """Draw everything that there is to compare."""
    mixers = mixer_cases(seed)
    return [
        *mixers,
        *map(by_token, mixers),
        forecaster_case(seed),
        noise_case(seed),
        co2_case(seed),
    ]


def check(
    candidate: Runner, reference: Runner, *, seed: int = 0, note: Callable[[str], None] = lambda _: None
) -> ParityReport:
    """Compare a candidate with a reference, which is held to be right, in all that there is to compare.

    Parameters
    ----------
    candidate, reference
        The two sides.
    seed
        Of the cases.
    note
        Called with a line about what comes next.
    """
    return compare(reference, candidate, check_cases(seed), note=note)
