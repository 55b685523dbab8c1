"""Who computes the works. Each is imported only in the process that runs it."""

from benchmarks.contenders.contender import Contender, UnavailableError
from benchmarks.contenders.registry import CONTENDERS, OURS, Entry

__all__ = ["CONTENDERS", "OURS", "Contender", "Entry", "UnavailableError"]
