"""What a comparison found: every result, where it first goes wrong, and all of it as JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mamba2_bridge.exceptions import ConfigError, ParityError
from mamba2_bridge.files import write_json
from mamba2_bridge.parity.plain import (
    items,
    named,
    plain,
    plain_result,
    read_field,
    read_result,
    text,
    texts,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from mamba2_bridge.parity.cases import DType
    from mamba2_bridge.parity.result import Mode, Phase, TensorResult

FORMAT = "mamba2-bridge parity 1"
"""What JSON files of reports say that they are."""

PHASES: tuple[Phase, ...] = ("forward", "backward", "step")
MODES: tuple[Mode, ...] = ("isolated", "accumulated")


def versions() -> dict[str, str]:
    """Return the versions of what takes part, and the machine's architecture."""
    packages = {}
    for name in ("mamba2-bridge", "numpy", "torch", "transformers"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {"python": platform.python_version(), **packages, "machine": platform.machine()}


@dataclass(frozen=True)
class ParityReport:
    """Everything that was compared.

    Attributes
    ----------
    candidate, reference
        Names of the sides.
    cases
        Names of the cases that were asked for.
    results
        One for every tensor, in the order in which they were computed.
    versions
        Of the packages that took part.
    notes
        Whatever else is to be told, as JSON can hold it.
    """

    candidate: str
    reference: str
    cases: Sequence[str]
    results: Sequence[TensorResult]
    versions: Mapping[str, str] = field(default_factory=versions)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> list[TensorResult]:
        """Every result that is not a pass."""
        return [result for result in self.results if not result.passed]

    @property
    def passed(self) -> bool:
        """Whether something was compared, since nothing proves nothing, and all of it is within bounds."""
        return bool(self.results) and not self.failures

    def first(
        self,
        phase: Phase | None = None,
        mode: Mode | None = None,
        *,
        case: str | None = None,
        dtype: DType | None = None,
    ) -> TensorResult | None:
        """Return the first failure, in the order in which tensors are made, among those asked for."""
        for result in self.results:
            if (
                not result.passed
                and phase in (None, result.phase)
                and mode in (None, result.mode)
                and case in (None, result.case)
                and dtype in (None, result.dtype)
            ):
                return result
        return None

    @property
    def divergences(self) -> list[TensorResult]:
        """Where each case goes wrong in each dtype: one failure each, whose stage is the one to look at.

        With stages on their own, that is the first that fails in forward, or if none does, in backward. It is
        the first that fails with errors accumulated where no stage fails on its own or none was run so, and
        the first optimizer step that fails where all else is right.
        """
        found = []
        for case, dtype in dict.fromkeys((result.case, result.dtype) for result in self.results):
            firsts = (self.first(phase, mode, case=case, dtype=dtype) for mode in MODES for phase in PHASES)
            found += [first for first in firsts if first is not None][:1]
        return found

    def raise_for_failures(self, *, every: bool = False) -> None:
        """Do nothing if all passed.

        Parameters
        ----------
        every
            Whether to name every failure rather than where each case goes wrong first.

        Raises
        ------
        ParityError
            Naming where each case goes wrong, with the index and both values.
        """
        __tracebackhide__ = True  # pytest then shows the caller
        if self.passed:
            return
        if not self.results:
            raise ParityError(f"{self.candidate} against {self.reference}: nothing was compared")
        lines = [f"{result}; look at {result.stage}" for result in self.divergences]
        if every:
            lines = [str(result) for result in self.failures]
        raise ParityError(
            f"{self.candidate} against {self.reference}: "
            f"{len(self.failures)} of {len(self.results)} tensors differ\n" + "\n".join(lines)
        )

    def worst(self) -> list[tuple[TensorResult, int]]:
        """Return each quantity's and dtype's worst result, by its bound, and how many there are."""

        def key(result: TensorResult) -> tuple[str, str]:
            return result.quantity, result.dtype

        order = {key(result): number for number, result in reversed(list(enumerate(self.results)))}
        ordered = sorted(self.results, key=lambda result: order[key(result)])
        groups = (list(group) for _, group in groupby(ordered, key))
        return [(max(group, key=lambda result: result.badness), len(group)) for group in groups]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; a number that is not finite is a string."""
        return {
            "format": FORMAT,
            "passed": self.passed,
            "candidate": self.candidate,
            "reference": self.reference,
            "cases": list(self.cases),
            "versions": dict(self.versions),
            "worst": [{**plain_result(result), "tensors": count} for result, count in self.worst()],
            "divergences": [{"stage": result.stage, "message": str(result)} for result in self.divergences],
            "failures": [str(result) for result in self.failures],
            "notes": plain(dict(self.notes)),
            "results": [plain_result(result) for result in self.results],
        }

    @classmethod
    def from_dict(cls, value: Any, where: str = "report") -> Self:
        """Make the report again that `to_dict` was called on.

        Parameters
        ----------
        value
            From JSON.
        where
            What messages call it.

        Raises
        ------
        ConfigError
            Naming the part that is missing, isn't what it should be, or says other than the results.
        """
        found = value.get("format") if isinstance(value, dict) else None
        if found != FORMAT:
            raise ConfigError(f"{where} is no parity report: 'format' must be {FORMAT!r}, got {found!r:.40}")
        part = partial(read_field, value, where=where)
        report = cls(
            part("candidate", text),
            part("reference", text),
            part("cases", texts),
            part("results", partial(items, read=read_result)),
            {
                name: text(version, f"{where}.versions.{name}")
                for name, version in part("versions", named).items()
            },
            part("notes", named),
        )
        if part("passed", truth) != report.passed:
            raise ConfigError(f"{where} says passed: {value['passed']}, but its results {report.passed}")
        return report

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote.

        Raises
        ------
        FileNotFoundError
            If the file is not there.
        ConfigError
            If it holds anything but a report, or a damaged one, naming what is wrong.
        """
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        return cls.from_dict(value, str(path))

    def write(self, path: Path) -> None:
        """Write `to_dict` in place of ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_dict())
