"""Peak memory of a call, from Linux's own books."""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Growth:
    """By how much the resident set grows at its peak, over what it is at the start.

    Attributes
    ----------
    bytes
        The growth, after the ``with`` block; None where the system doesn't tell.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None

    def __enter__(self) -> Self:
        """Give free memory back, set the peak to what is used now."""
        gc.collect()
        _trim()
        try:
            _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
            self._before: int | None = _status("VmRSS")
        except OSError:
            self._before = None
        return self

    def __exit__(self, *error: object) -> None:
        """Read the peak."""
        if self._before is not None:
            self.bytes = max(0, _status("VmHWM") - self._before)


def limit_to_available() -> None:
    """Let allocations fail in this process before the machine runs out of memory for all."""
    available = _kibibytes(Path("/proc/meminfo"), "MemAvailable")
    resource.setrlimit(resource.RLIMIT_DATA, (available, available))


def _trim() -> None:
    """Give back what glibc keeps of freed memory; other C libraries keep what they keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(key: str) -> int:
    return _kibibytes(_STATUS, key)


def _kibibytes(path: Path, key: str) -> int:
    """Read a line ``key:  123 kB``, in bytes."""
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no {key}")
