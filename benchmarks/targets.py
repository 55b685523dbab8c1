"""What ours is held to: "Done when" of the issue that asked for fused kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.contenders.registry import OURS
from benchmarks.devices import CPU
from benchmarks.limit import share_of_limit
from benchmarks.works import WORKS

if TYPE_CHECKING:
    from benchmarks.results import Results


@dataclass(frozen=True)
class Target:
    """Bounds on one work.

    Attributes
    ----------
    work
        Its name.
    share_of_limit
        At least; None: no limit applies.
    of_tuned_compile, of_hf
        Our time over theirs, at most.
    """

    work: str
    share_of_limit: float | None
    of_tuned_compile: float
    of_hf: float


TARGETS = (
    Target("forward-512", 0.86, 0.85, 0.43),
    Target("forward-2048", 0.91, 0.78, 0.37),
    Target("forward+backward-512", 0.87, 0.76, 0.43),
    Target("forward+backward-2048", 0.90, 0.73, 0.40),
    Target("forward+backward-8192", 0.88, 0.58, 0.30),
    Target("forward+backward-2048-fp64", 0.88, 0.66, 0.58),
    Target("small-forward", 0.60, 0.60, 0.15),
    Target("small-forward+backward", 0.60, 0.40, 0.18),
    Target("step", None, 0.40, 0.12),
)

MEMORY_WORK = "forward+backward-8192"
MOST_MEMORY_MIB = 600

GROWTH_FROM, GROWTH_TO = 2048, 65536
MOST_GROWTH = 1.10
"""Time over limit, which is time per token at the machine's speed of the moment, at the greater length over
that at the smaller, at most."""


@dataclass(frozen=True)
class Check:
    """One number against its target.

    Attributes
    ----------
    title
        What is measured.
    measured
        The number; None: not measured.
    target
        Its bound.
    at_least
        Whether the bound is a lower one.
    """

    title: str
    measured: float | None
    target: float
    at_least: bool = False

    @property
    def passed(self) -> bool | None:
        """Whether it holds; None: not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.target if self.at_least else self.measured <= self.target


def ratio(results: Results, work: str, contender: str) -> float | None:
    """Give our time over a contender's."""
    ours, theirs = results.seconds(work, OURS), results.seconds(work, contender)
    return None if ours is None or theirs is None else ours / theirs


def checks(results: Results) -> list[Check]:
    """Hold a run on a CPU against the targets of the works that it did."""
    did = {done.work for done in results.works} if results.device == CPU else set()
    lines = []
    for target in TARGETS:
        if target.work not in did:
            continue
        title = WORKS[target.work].title
        if target.share_of_limit is not None:
            share = share_of_limit(results, target.work, OURS)
            lines.append(Check(f"{title}: share of the limit", share, target.share_of_limit, at_least=True))
        for of, contender, bound in (
            ("tuned, compiled", "tuned-compile", target.of_tuned_compile),
            ("transformers", "hf", target.of_hf),
        ):
            lines.append(Check(f"{title}: of {of}'s time", ratio(results, target.work, contender), bound))
    if MEMORY_WORK in did:
        title = f"{WORKS[MEMORY_WORK].title}: peak memory growth, MiB"
        lines.append(Check(title, _memory_mib(results), MOST_MEMORY_MIB))
    for mode in ("forward", "forward+backward"):
        if f"{mode}-{GROWTH_TO}" not in did:
            continue
        title = f"{mode.replace('+', ' + ')}: time over limit at {GROWTH_TO}, of that at {GROWTH_FROM}"
        lines.append(Check(title, _growth(results, mode), MOST_GROWTH))
    return lines


def _memory_mib(results: Results) -> float | None:
    measured = results.measurement(MEMORY_WORK, OURS)
    return None if measured is None or measured.memory is None else measured.memory / 2**20


def _growth(results: Results, mode: str) -> float | None:
    short, long = (share_of_limit(results, f"{mode}-{length}", OURS) for length in (GROWTH_FROM, GROWTH_TO))
    return None if short is None or long is None else short / long
