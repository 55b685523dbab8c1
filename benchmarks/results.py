"""What a run found, as JSON: the only source of the numbers in the documentation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.devices import CPU
from mamba2_bridge.files import write_json

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """Seconds of one work by one contender.

    Attributes
    ----------
    best, median
        Of all calls in the rounds that counted.
    calls, rounds
        How many there were.
    discarded
        Rounds that others disturbed.
    quiet
        False: every round was disturbed, and the least disturbed ones were taken.
    """

    best: float
    median: float
    calls: int
    rounds: int
    discarded: int
    quiet: bool


@dataclass(frozen=True)
class Measurement:
    """One contender at one work.

    Attributes
    ----------
    timing
        Its times; None: it didn't run, or computed something else.
    memory
        Growth of its resident set at the peak of the first call, in bytes.
    worst, error
        Which of its arrays differs most from the first contender's, and by how much, relatively.
    note
        Why there are no times.
    """

    timing: Timing | None = None
    memory: int | None = None
    worst: str | None = None
    error: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class WorkResult:
    """One work by all contenders.

    Attributes
    ----------
    work
        Its name in `benchmarks.works`.
    flops
        What it takes.
    peak
        FLOPs a second of the machine's best product between the rounds of this work.
    measurements
        By contender's name.
    """

    work: str
    flops: int
    peak: float
    measurements: dict[str, Measurement]


@dataclass(frozen=True)
class StageTime:
    """One stage of a pass over the block.

    Attributes
    ----------
    work
        The pass: a work's name.
    stage
        The stage's name.
    seconds
        Its best time.
    """

    work: str
    stage: str
    seconds: float


@dataclass(frozen=True)
class Machine:
    """Where it ran, by its processor.

    Attributes
    ----------
    processor
        Its name.
    simd
        Vector extensions that it has.
    cores
        How many the system sees.
    memory_gib
        Main memory.
    gpu
        Name of the GPU that took part; None: none did.
    """

    processor: str
    simd: list[str]
    cores: int
    memory_gib: float
    gpu: str | None = None


@dataclass
class Peak:
    """The best that the machine did during the run.

    Attributes
    ----------
    source
        What multiplied.
    flops_per_second
        By dtype.
    product
        By dtype, which products were the fastest.
    copy_bandwidth
        Bytes read and written each second by a large copy.
    """

    source: str
    flops_per_second: dict[str, float] = field(default_factory=dict)
    product: dict[str, str] = field(default_factory=dict)
    copy_bandwidth: float = 0.0


@dataclass
class Results:
    """A whole run.

    Attributes
    ----------
    date, commit
        When, and of which sources; a commit ends in ``+`` where files had changed since.
    threads
        Threads that every contender had.
    machine
        Where.
    versions
        Of what took part.
    peak
        The machine's best.
    works
        In the order in which they were done.
    stages
        The breakdown; empty where the build doesn't tell.
    device
        Where all computed.
    """

    date: str
    commit: str
    threads: int
    machine: Machine
    versions: dict[str, str]
    peak: Peak
    works: list[WorkResult] = field(default_factory=list)
    stages: list[StageTime] = field(default_factory=list)
    device: str = CPU

    def measurement(self, work: str, contender: str) -> Measurement | None:
        """Find what a contender did at a work."""
        return next((done.measurements.get(contender) for done in self.works if done.work == work), None)

    def seconds(self, work: str, contender: str) -> float | None:
        """Find a contender's best time at a work."""
        measured = self.measurement(work, contender)
        return None if measured is None or measured.timing is None else measured.timing.best

    def write(self, path: Path) -> None:
        """Write it in place of ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write` wrote."""
        return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Results:
        """Make it from the JSON's contents."""
        return cls(
            **{
                **values,
                "machine": Machine(**values["machine"]),
                "peak": Peak(**values["peak"]),
                "works": [_work_result(work) for work in values["works"]],
                "stages": [StageTime(**stage) for stage in values["stages"]],
            }
        )


def _work_result(values: dict[str, Any]) -> WorkResult:
    measurements = {name: _measurement(measured) for name, measured in values["measurements"].items()}
    return WorkResult(values["work"], values["flops"], values["peak"], measurements)


def _measurement(values: dict[str, Any]) -> Measurement:
    timing = values["timing"]
    return Measurement(**{**values, "timing": None if timing is None else Timing(**timing)})
