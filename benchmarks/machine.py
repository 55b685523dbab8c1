"""Where a run took place: the processor's name and what took part; nothing that names the machine itself."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.results import Machine

_SIMD = re.compile(r"^(sse4_[12]|avx.*|fma|f16c|amx.*|neon|asimd.*|sve.*)$")
_PACKAGES = ("torch", "transformers", "numpy")
_ROOT = Path(__file__).parents[1]


def machine(gpu: str | None) -> Machine:
    """Describe this machine by its processor, and by the GPU that takes part."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = os.cpu_count() or 1
    return Machine(processor(cpuinfo), simd(cpuinfo), cores, round(memory / 2**30, 1), gpu)


def processor(cpuinfo: str) -> str:
    """Give the model name in ``/proc/cpuinfo``, with what tells generations of one name apart."""
    fields = _fields(cpuinfo)
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        return f"{name} (family {fields['cpu family']}, model {fields['model']})"
    return name


def simd(cpuinfo: str) -> list[str]:
    """Give the vector extensions among the flags in ``/proc/cpuinfo``."""
    fields = _fields(cpuinfo)
    flags = fields.get("flags", fields.get("Features", "")).split()
    return sorted(flag for flag in flags if _SIMD.match(flag))


def versions() -> dict[str, str]:
    """Give the versions of what takes part."""
    import mamba2_bridge  # noqa: PLC0415

    found = {"python": platform.python_version(), "mamba2_bridge": mamba2_bridge.__version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str:
    """Give the commit of the sources, with a ``+`` if files have changed since."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _fields(cpuinfo: str) -> dict[str, str]:
    """Read the first processor's lines."""
    lines = (line.partition(":") for line in cpuinfo.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
