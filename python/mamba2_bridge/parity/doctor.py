"""An examination of an installation: what it is made of, and native models against what else is there."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mamba2_bridge as mb
from mamba2_bridge import _native
from mamba2_bridge._backend import why_not_cuda
from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.mamba2_cases import by_token, mixer_cases
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.report import versions
from mamba2_bridge.parity.tolerances import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.tolerances import Policy

_CASES = ("plain", "states", "groups", "dt_limit", "one_token")
"""Of the parity command's cases, a few that take a second or two together."""


@dataclass(frozen=True)
class Examination:
    """What was found.

    Attributes
    ----------
    facts
        Versions, the machine, threads.
    lines
        One for each pair that was compared, or a reason why it was not.
    passed
        Whether all that was compared agrees; False where nothing could be.
    """

    facts: dict[str, str]
    lines: Sequence[str]
    passed: bool

    def __str__(self) -> str:
        """Give it as text to be sent; the last line is a checksum of those before."""
        width = max(map(len, self.facts))
        body = [f"{name:{width}}  {value}" for name, value in self.facts.items()]
        text = "\n".join(["mamba2-bridge doctor", "", *body, "", *self.lines])
        return f"{text}\n\nseal {seal(text)}"


def seal(text: str) -> str:
    """Return the checksum that closes an examination's text."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def examine(note: Callable[[str], None] = lambda _: None) -> Examination:
    """Compare native models with each other and with the user's own torch and transformers.

    Parameters
    ----------
    note
        Called with a line about what comes next.
    """
    facts = {
        **versions(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "kernels on": _native.instruction_set(),
        "backend": mb.backend(),
        "CUDA": why_not_cuda() or "loaded",
        "threads": str(mb.get_num_threads()),
    }
    lines, passed = [], []
    for line, report in _pairs(note):
        lines.append(line)
        if report is not None:
            passed.append(report.passed)
    return Examination(facts, lines, bool(passed) and all(passed))


def _pairs(note: Callable[[str], None]) -> Iterator[tuple[str, ParityReport | None]]:
    mixers = [case for case in mixer_cases() if case.name in _CASES]
    cases = [*mixers, *map(by_token, mixers)]
    note("native models with each other")
    yield _compared(NativeRunner("composed"), NativeRunner("fused"), cases)
    try:
        from mamba2_bridge.parity.in_torch.twin import TwinRunner  # noqa: PLC0415 (may be missing)
    except ModuleNotFoundError as error:
        yield f"twin: not compared, {error}", None
        return
    note("with the twin in PyTorch")
    yield _compared(TwinRunner(), NativeRunner("fused"), cases)
    yield _compared(TwinRunner(), NativeRunner("composed"), cases)
    try:
        from mamba2_bridge.parity.in_torch.huggingface import POLICY, HuggingFaceRunner  # noqa: PLC0415 (may be missing)
    except ModuleNotFoundError as error:
        yield f"transformers: not compared, {error}", None
        return
    note("with transformers")
    yield _compared(NativeRunner("composed"), HuggingFaceRunner(), mixers[:1], POLICY)


def _compared(
    reference: Runner, candidate: Runner, cases: Sequence[Case], policy: Policy = DEFAULT
) -> tuple[str, ParityReport]:
    report = compare(reference, candidate, cases, policy=policy)
    title = f"{candidate.name} against {reference.name}"
    errors = " ".join(
        f"{dtype.replace('float', 'fp')} {max(r.error for r in report.results if r.dtype == dtype):.1e}"
        for dtype in ("float64", "float32")
    )
    verdict = "agree"
    if not report.passed:
        first = report.divergences[0]
        verdict = f"DIFFER: {first}; look at {first.stage}"
    return f"{title}: {len(report.results)} tensors, largest errors {errors}, {verdict}", report


def _processor() -> str:
    """Name the processor, as Linux does; elsewhere what Python knows of it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()
