"""The limit: a work's FLOPs at the best speed of the gemm crate's products between the work's rounds.

Between its own rounds, as the speed of a shared machine changes from one minute to the next. Elementwise work
counts at that speed, too. The limit binds who multiplies with the crate; products of its own may beat it. A
decode step has none: it reads every weight for one token, and waits for memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.works import WORKS

if TYPE_CHECKING:
    from benchmarks.results import Results


def limit_seconds(results: Results, work: str) -> float | None:
    """Give the least time that a work can take; None for a decode step."""
    if WORKS[work].mode == "step":
        return None
    done = next((done for done in results.works if done.work == work), None)
    return None if done is None or not done.peak else done.flops / done.peak


def share_of_limit(results: Results, work: str, contender: str) -> float | None:
    """Give which share of the machine's best speed a contender reaches, from 0 to 1."""
    limit, seconds = limit_seconds(results, work), results.seconds(work, contender)
    return None if limit is None or seconds is None else limit / seconds
