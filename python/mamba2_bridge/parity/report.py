"""What a comparison found: every result, where it first goes wrong, and all of it as JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from io import StringIO
from itertools import groupby
from pathlib import Path
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
    from os import PathLike

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


@dataclass(frozen=True, repr=False)
class ParityReport:
    """Everything that was compared; ``print(report)`` shows it as the commands do.

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

    def __repr__(self) -> str:
        """Tell the sides, and how many tensors differ."""
        return (
            f"<ParityReport: {self.candidate} against {self.reference}, {len(self.failures)} of "
            f"{len(self.results)} tensors differ>"
        )

    def __str__(self) -> str:
        """Lay it out for 80 columns, as the commands print it."""
        from rich.console import Console  # noqa: PLC0415 (only here)

        from mamba2_bridge.parity.terminal import print_report  # noqa: PLC0415 (it needs this module)

        text = StringIO()
        print_report(self, Console(file=text, width=80, color_system=None))
        return text.getvalue().rstrip()

    @property
    def failures(self) -> list[TensorResult]:
        """Every result that is not a pass."""
        return [result for result in self.results if not result.passed]

    @property
    def passed(self) -> bool:
        """Whether all is within bounds and something was compared in each case: nothing proves nothing."""
        return bool(self.results) and not self.failures and not self.untold

    @property
    def untold(self) -> list[str]:
        """Names of the cases in which nothing was compared."""
        told = {result.case for result in self.results}
        return [case for case in self.cases if case not in told]

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
        order = [(mode, phase) for mode in MODES for phase in PHASES]
        found: dict[tuple[str, str], TensorResult] = {}

        def rank(result: TensorResult) -> int:
            return order.index((result.mode, result.phase))

        for result in self.failures:
            place = result.case, result.dtype
            if place not in found or rank(result) < rank(found[place]):
                found[place] = result
        places = dict.fromkeys((result.case, result.dtype) for result in self.results)
        return [found[place] for place in places if place in found]

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
        sides = f"{self.candidate} against {self.reference}"
        if not self.failures:
            where = f" in {', '.join(self.untold)}" if self.results else ""
            raise ParityError(f"{sides}: nothing was compared{where}")
        lines = [f"{result}; look at {result.stage}" for result in self.divergences]
        if every:
            lines = [str(result) for result in self.failures]
        raise ParityError(
            f"{sides}: {len(self.failures)} of {len(self.results)} tensors differ\n" + "\n".join(lines)
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
        told = report.to_dict()
        for name in ("failures", "divergences", "worst"):
            if value.get(name) != told[name]:
                raise ConfigError(f"{where}: {name} are not those of its results: it was changed by hand")
        return report

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """Read what `write` wrote.

        Raises
        ------
        FileNotFoundError
            If the file is not there.
        ConfigError
            If it holds anything but a report, or a damaged one, naming what is wrong.
        """
        path = Path(path)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        return cls.from_dict(value, str(path))

    def write(self, path: str | PathLike[str]) -> None:
        """Write `to_dict` in place of ``path``."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_dict())
