"""One contender doing one work, in the process that is its own."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import memory
from benchmarks.contenders import CONTENDERS
from benchmarks.devices import CPU
from benchmarks.interference import ForeignTime

if TYPE_CHECKING:
    from benchmarks.parameters import Arrays
    from benchmarks.works import Work

_WAKING_SECONDS = 0.02
_MOST_CALLS = 1000


@dataclass(frozen=True)
class FirstCall:
    """What the first call computed.

    Attributes
    ----------
    outputs
        Output and gradients.
    memory
        By how many bytes the process grew at its peak; None: the system doesn't tell, or it is
        a GPU's memory that is filled.
    """

    outputs: Arrays
    memory: int | None


@dataclass(frozen=True)
class Round:
    """One turn of a contender.

    Attributes
    ----------
    seconds
        Of each call.
    foreign
        The share of the machine's time that others took meanwhile, from 0 to 1.
    """

    seconds: list[float]
    foreign: float


class Session:
    """A contender that is ready for its work.

    Parameters
    ----------
    contender
        Its name.
    work
        What it does.
    threads
        With how many threads.
    device
        Where.
    """

    def __init__(self, contender: str, work: Work, threads: int, device: str) -> None:
        self.on_gpu = device != CPU
        if not self.on_gpu:  # CUDA reserves addresses that it never fills
            memory.limit_to_available()
        self.contender = CONTENDERS[contender].make(work, threads, device)

    def prepare(self) -> None:
        """Compile, where that is needed."""
        self.contender.compile()

    def first_call(self) -> FirstCall:
        """Do the work, watching memory."""
        with memory.Growth() as growth:
            result = self.contender.call()
        return FirstCall(self.contender.outputs(result), None if self.on_gpu else growth.bytes)

    def round(self, at_least: float) -> Round:
        """Do the work again and again until ``at_least`` seconds have gone by; once, if it takes longer."""
        seconds: list[float] = []
        gc.collect()
        gc.disable()
        start = perf_counter()
        while perf_counter() - start < _WAKING_SECONDS:
            self.contender.wake_threads()
        with ForeignTime() as foreign:
            start = perf_counter()
            while perf_counter() - start < at_least and len(seconds) < _MOST_CALLS:
                before = perf_counter()
                self.contender.call()
                seconds.append(perf_counter() - before)
        gc.enable()
        return Round(seconds, foreign.share)
