"""The limit: a work's FLOPs at the machine's best speed of a product in the same run.

Nobody is faster without doing fewer FLOPs. A decode step has no such limit: it reads every weight for one
token, and waits for memory.
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
    flops = next((done.flops for done in results.works if done.work == work), None)
    peak = results.peak.flops_per_second.get(WORKS[work].dtype)
    return None if flops is None or peak is None else flops / peak


def share_of_limit(results: Results, work: str, contender: str) -> float | None:
    """Give which share of the machine's best speed a contender reaches, from 0 to 1."""
    limit, seconds = limit_seconds(results, work), results.seconds(work, contender)
    return None if limit is None or seconds is None else limit / seconds
