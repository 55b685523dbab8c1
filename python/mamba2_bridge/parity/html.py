"""A report as one page of HTML that needs nothing else: no network, no files beside it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mamba2_bridge._extras import require
from mamba2_bridge.files import replaced_file
from mamba2_bridge.parity.overview import figure, losses, runs
from mamba2_bridge.parity.plain import plain

require("jinja2", "mamba2_bridge.parity.html")

import jinja2  # noqa: E402 (only now is it sure to be there)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mamba2_bridge.parity.overview import Cell
    from mamba2_bridge.parity.report import ParityReport
    from mamba2_bridge.parity.result import TensorResult

_TEMPLATES = Path(__file__).parent / "templates"


def write_html(report: ParityReport, path: Path) -> None:
    """Write a report as a page in place of ``path``.

    Names of cases, tensors and sides may be any text: they are escaped wherever they go.

    Parameters
    ----------
    report
        What a comparison found.
    path
        Of the page; its folder is made where it is not there.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters["short"] = lambda dtype: dtype.replace("float", "fp")
    environment.filters["figure"] = figure
    page = environment.get_template("report.html").render(
        report=report,
        failures=len(report.failures),
        notes=json.dumps(plain(dict(report.notes)), indent=1, ensure_ascii=False),
        data=_data(report),
        isnan=math.isnan,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as beside:
        beside.write_text(page, encoding="utf-8")


def _data(report: ParityReport) -> dict[str, Any]:
    """Collect what the page's scripts draw; results are told by their numbers."""
    numbers = {id(result): number for number, result in enumerate(report.results)}

    def cell(of: Cell | None) -> dict[str, int] | None:
        return (
            None if of is None else {"worst": numbers[id(of.worst)], "tensors": of.tensors, "wrong": of.wrong}
        )

    data: dict[str, Any] = plain(
        {
            "columns": {name: [read(result) for result in report.results] for name, read in _COLUMNS.items()},
            "runs": [
                {
                    "case": run.case,
                    "dtype": run.dtype,
                    "divergence": None if run.divergence is None else numbers[id(run.divergence)],
                    "phases": {
                        phase: [
                            {
                                "name": row.name,
                                "diverges": row.diverges,
                                "accumulated": cell(row.accumulated),
                                "isolated": cell(row.isolated),
                            }
                            for row in rows
                        ]
                        for phase, rows in run.phases.items()
                    },
                }
                for run in runs(report)
            ],
            "losses": [
                {"case": of.case, "dtype": of.dtype, "steps": of.steps, "got": of.got, "want": of.want}
                for of in losses(report)
            ],
            "candidate": report.candidate,
            "reference": report.reference,
        }
    )
    return data


def _bracketed(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _measure(name: str) -> Callable[[TensorResult], Any]:
    return lambda result: None if result.difference is None else getattr(result.difference, name)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


_COLUMNS: dict[str, Callable[[TensorResult], Any]] = {
    "tensor": lambda result: result.tensor,
    "passed": lambda result: result.passed,
    "case": lambda result: result.case,
    "dtype": lambda result: result.dtype,
    "mode": lambda result: result.mode,
    "phase": lambda result: result.phase,
    "step": lambda result: result.step,
    "stage": lambda result: result.stage,
    "quantity": lambda result: result.quantity,
    "error": lambda result: None if result.difference is None else result.error,
    "bound": lambda result: result.bound,
    "badness": lambda result: result.badness,
    "noise": lambda result: None if result.difference is None else _known(result.noise),
    **{name: _measure(name) for name in ("max_abs", "got", "want", "rms", "cosine", "norm_ratio")},
    **{name: _measure(name) for name in ("sign_agreement", "ulp", "mismatches")},
    "index": lambda result: "" if result.difference is None else _bracketed(result.difference.index),
    "nonfinite_got": lambda result: None if result.difference is None else result.difference.nonfinite[0],
    "nonfinite_want": lambda result: None if result.difference is None else result.difference.nonfinite[1],
    "shape": lambda result: _bracketed(result.shape),
    "hint": lambda result: result.hint,
    "problem": lambda result: result.problem,
}
