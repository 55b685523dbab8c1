"""Whether others took the cores while something was timed."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Places in a line of /proc/stat: idle times, and guest times, which user times hold already."""


class ForeignTime:
    """Processor time that went to other processes, or to other virtual machines, during a ``with`` block.

    All cores' busy time less this process's own.

    Attributes
    ----------
    share
        Of the machine's time, from 0 to 1, after the block. The system counts in ticks, a hundred a second:
        of two of them a core nothing is concluded.
    """

    def __init__(self) -> None:
        self.share = 0.0

    def __enter__(self) -> Self:
        """Read the clocks."""
        self._wall, self._own, self._busy = perf_counter(), process_time(), machine_busy_seconds()
        return self

    def __exit__(self, *error: object) -> None:
        """Read them again."""
        busy = machine_busy_seconds() - self._busy
        own = process_time() - self._own
        wall = perf_counter() - self._wall
        cores = os.cpu_count() or 1
        doubt = 2 * cores / os.sysconf("SC_CLK_TCK")
        self.share = max(0.0, busy - own - doubt) / (wall * cores)


def machine_busy_seconds() -> float:
    """Give how long all cores together were busy since the machine was started, stolen time included."""
    return busy_ticks(Path("/proc/stat").read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")


def busy_ticks(stat: str) -> int:
    """Sum the ticks in the first line of ``/proc/stat`` that are not idle ones."""
    ticks = [int(field) for field in stat.splitlines()[0].split()[1:]]
    return sum(ticks[:_GUEST]) - ticks[_IDLE] - ticks[_IOWAIT]
