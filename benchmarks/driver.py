"""A whole run: every work by every contender, the machine's best, the stages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.agreement import TOLERANCE, worst_error
from benchmarks.contenders import CONTENDERS, OURS
from benchmarks.flops import flops
from benchmarks.probe import Probe
from benchmarks.remote import Remote, RemoteError, prepare_environment
from benchmarks.results import Measurement, Peak, Results, StageTime, WorkResult
from benchmarks.schedule import interleave
from benchmarks.session import Session
from benchmarks.stages import BROKEN_DOWN
from benchmarks.works import WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.parameters import Arrays
    from benchmarks.schedule import Effort
    from benchmarks.session import FirstCall
    from benchmarks.works import DType, Work


@dataclass
class _Runner:
    """One contender's process, and what is known of it so far."""

    name: str
    remote: Remote
    first: Measurement | None = None


class Driver:
    """Runs works and gathers `Results`.

    Parameters
    ----------
    threads, device
        Threads of every contender, and where it computes.
    effort
        How long each is timed.
    contenders
        Names of those that take part.
    note
        Told, in a line, what goes on.
    """

    def __init__(
        self,
        threads: int,
        device: str,
        effort: Effort,
        contenders: Sequence[str],
        note: Callable[[str], None],
    ) -> None:
        prepare_environment(threads)
        self.threads, self.device = threads, device
        self.effort, self.contenders, self.note = effort, contenders, note
        self._probe = Remote(Probe, threads, device)
        self._peak = 0.0
        self.results = Results(
            date=datetime.now(timezone.utc).date().isoformat(),
            commit=machine.commit(),
            threads=threads,
            device=device,
            machine=machine.machine(self._probe.call("gpu")),
            versions=machine.versions(),
            peak=Peak(source=self._probe.call("gemm_source")),
        )

    def close(self) -> None:
        """End the probe's process."""
        self._probe.close()

    def do(self, work: Work) -> None:
        """Do one work by all contenders that take part in it."""
        names = [name for name in self.contenders if work.contested or name == OURS]
        self._peak = 0.0
        runners = [_Runner(name, Remote(Session, name, work, self.threads, self.device)) for name in names]
        try:
            measurements = self._measure(work, runners)
        finally:
            for runner in runners:
                runner.remote.close()
        self.results.works.append(WorkResult(work.name, flops(work), self._peak, measurements))

    def _measure(self, work: Work, runners: list[_Runner]) -> dict[str, Measurement]:
        done: dict[str, Measurement] = {}
        ready = self._prepare(work, runners, done)
        ready = self._first_calls(work, ready, done)
        self.note(f"{work.title}: timing")
        turns = {
            runner.name: lambda remote=runner.remote: remote.call("round", self.effort.round_seconds)
            for runner in ready
        }
        timings = interleave(turns, self.effort, lambda: self._watch_peak(work.dtype))
        for runner in ready:
            first = runner.first or Measurement()
            done[runner.name] = Measurement(timings[runner.name], first.memory, first.worst, first.error)
        return {runner.name: done[runner.name] for runner in runners}

    def _prepare(self, work: Work, runners: list[_Runner], done: dict[str, Measurement]) -> list[_Runner]:
        """Make all models, at the same time: nothing is timed yet."""
        self.note(f"{work.title}: preparing")
        for runner in runners:
            runner.remote.send("prepare")
        ready = []
        for runner in runners:
            try:
                runner.remote.receive()
                ready.append(runner)
            except RemoteError as error:
                done[runner.name] = Measurement(note=str(error))
        return ready

    def _first_calls(self, work: Work, runners: list[_Runner], done: dict[str, Measurement]) -> list[_Runner]:
        """Let each compute once, by itself; keep those that computed what the first one did."""
        reference: Arrays | None = None
        ready = []
        for runner in runners:
            self.note(f"{work.title}: first call of {CONTENDERS[runner.name].title}")
            try:
                first: FirstCall = runner.remote.call("first_call")
            except RemoteError as error:
                done[runner.name] = Measurement(note=str(error))
                continue
            reference = first.outputs if reference is None else reference
            worst, error_ = worst_error(first.outputs, reference)
            if error_ <= TOLERANCE:
                runner.first = Measurement(None, first.memory, worst, error_)
                ready.append(runner)
            else:
                note = f"computed something else: {worst} is off by {error_:.1e}"
                done[runner.name] = Measurement(None, first.memory, worst, error_, note)
        return ready

    def _watch_peak(self, dtype: DType) -> None:
        """Measure the machine's best; keep what is better than before, in this work and in the run."""
        peak = self.results.peak
        for products, speed in self._probe.call("gemm_speeds", dtype).items():
            self._peak = max(self._peak, speed)
            if speed > peak.flops_per_second.get(dtype, 0.0):
                peak.flops_per_second[dtype], peak.product[dtype] = speed, products
        peak.copy_bandwidth = max(peak.copy_bandwidth, self._probe.call("copy_bandwidth"))

    def break_down(self, rounds: int) -> None:
        """Time the stages of the works that are broken down, each at its best of so many rounds."""
        for work in (WORKS[done.work] for done in self.results.works if done.work in BROKEN_DOWN):
            backward = work.mode == "forward+backward"
            self.note(f"{work.title}: stages")
            best: dict[str, float] = {}
            for _ in range(rounds):
                stages: dict[str, float] | None = self._probe.call("stage_seconds", work.seqlen, backward)
                if stages is None:
                    return
                for stage, seconds in stages.items():
                    best[stage] = min(seconds, best.get(stage, seconds))
            self.results.stages += [StageTime(work.name, stage, seconds) for stage, seconds in best.items()]


def disagreements(results: Results) -> list[str]:
    """Say in a line each where a contender computed something else, and where ours did not run."""
    return [
        f"{done.work}: {CONTENDERS[name].title}: {measured.note}"
        for done in results.works
        for name, measured in done.measurements.items()
        if measured.note is not None and (name == OURS or measured.error is not None)
    ]
