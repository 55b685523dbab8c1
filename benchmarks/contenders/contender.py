"""What a contender is: a model with the given parameters that does one work when called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.parameters import Arrays
    from benchmarks.works import Work


class UnavailableError(Exception):
    """A contender can't run here; the message says what it lacks."""


class Contender(ABC):
    """A model that is ready to do one work, again and again.

    Parameters
    ----------
    work
        What to do.
    threads
        Threads to do it with.
    device
        Where to do it: ``"cpu"`` or ``"cuda:0"``.
    """

    def __init__(self, work: Work, threads: int, device: str) -> None:
        self.work = work
        self.threads = threads
        self.device = device

    def compile(self) -> None:
        """Do once whatever needs to be done once, such as compiling for the work's shapes."""
        return

    @abstractmethod
    def call(self) -> Any:
        """Do the work to its end. This is what is timed, the release of the last call's results included."""

    @abstractmethod
    def outputs(self, result: Any) -> Arrays:
        """Give what a call computed: ``y``, and gradients as ``grad.input`` and ``grad.`` and a name."""

    @abstractmethod
    def wake_threads(self) -> None:
        """Compute something small in parallel: threads that slept are slow to start."""
