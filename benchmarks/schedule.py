"""The rounds of all contenders in turn, so that a slow minute of the machine is everybody's.

Only one process computes at a time. A round during which others took the cores is not counted and is done
again; where the machine never gets quiet, the least disturbed rounds are taken, and the results say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.results import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.session import Round

FOREIGN_ALLOWED = 0.05
"""Share of the machine's time that others may take in a round that counts."""

LEAST_ROUNDS = 2
"""Rounds that a contender gets however slow it is."""

TRIES = 3
"""A contender gets at most so many times the rounds, and the seconds, that it would need undisturbed."""


@dataclass(frozen=True)
class Effort:
    """How long the contenders of one work are timed.

    Attributes
    ----------
    rounds
        Rounds of each that count.
    round_seconds
        Least length of a round: fast works are done several times in it.
    contender_seconds
        After so long a contender gets no more rounds than `LEAST_ROUNDS`.
    """

    rounds: int
    round_seconds: float = 0.25
    contender_seconds: float = 10.0


@dataclass
class _Tally:
    """What a contender has done so far."""

    counted: list[Round] = field(default_factory=list)
    disturbed: list[Round] = field(default_factory=list)

    def add(self, done: Round) -> None:
        (self.counted if done.foreign <= FOREIGN_ALLOWED else self.disturbed).append(done)

    def wants(self, effort: Effort) -> bool:
        rounds = len(self.counted) + len(self.disturbed)
        spent = sum(sum(done.seconds) for done in self.counted + self.disturbed)
        tired = spent > effort.contender_seconds
        wanted = min(effort.rounds, LEAST_ROUNDS) if tired else effort.rounds
        exhausted = rounds >= TRIES * wanted or (
            rounds >= wanted and spent > TRIES * effort.contender_seconds
        )
        return len(self.counted) < wanted and not exhausted

    def timing(self, effort: Effort) -> Timing:
        quiet = bool(self.counted)
        least_disturbed = sorted(self.disturbed, key=lambda done: done.foreign)[: effort.rounds]
        rounds = self.counted or least_disturbed
        seconds = [second for done in rounds for second in done.seconds]
        return Timing(
            best=min(seconds),
            median=median(seconds),
            calls=len(seconds),
            rounds=len(rounds),
            discarded=len(self.disturbed) if quiet else len(self.disturbed) - len(rounds),
            quiet=quiet,
        )


def interleave(
    turns: Mapping[str, Callable[[], Round]], effort: Effort, between: Callable[[], None]
) -> dict[str, Timing]:
    """Give each contender its rounds, one after the other, until all have enough.

    Parameters
    ----------
    turns
        By contender's name, what does one round.
    effort
        How many and how long.
    between
        Called once in every cycle: the machine is measured under the same conditions.

    Returns
    -------
    dict of str to Timing
        By contender's name.
    """
    tallies = {name: _Tally() for name in turns}
    while waiting := [name for name, tally in tallies.items() if tally.wants(effort)]:
        between()
        for name in waiting:
            tallies[name].add(turns[name]())
    return {name: tally.timing(effort) for name, tally in tallies.items()}
