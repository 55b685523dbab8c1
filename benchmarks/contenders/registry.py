"""The contenders by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.contenders.contender import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contenders.contender import Contender
    from benchmarks.works import Work

_UNROLLED = "left out: torch.compile unrolls the twin's loop over chunks, which takes many minutes here"


@dataclass(frozen=True)
class Entry:
    """One contender.

    Attributes
    ----------
    title
        Its name in tables.
    module, factory
        Where its class is.
    options
        What else its class is made with.
    leaves_out
        Works that it doesn't do, and why.
    """

    title: str
    module: str
    factory: str
    options: Mapping[str, Any] = field(default_factory=dict)
    leaves_out: Mapping[str, str] = field(default_factory=dict)

    def make(self, work: Work, threads: int, device: str) -> Contender:
        """Import it and make it ready for a work.

        Raises
        ------
        UnavailableError
            It doesn't do this work, or something it needs isn't installed.
        """
        if work.name in self.leaves_out:
            raise UnavailableError(self.leaves_out[work.name])
        try:
            factory = getattr(import_module(f"benchmarks.contenders.{self.module}"), self.factory)
        except ModuleNotFoundError as error:
            raise UnavailableError(f"needs {error.name}: pip install 'mamba2-bridge[bench]'") from error
        contender: Contender = factory(work, threads, device, **self.options)
        return contender


OURS = "ours"

CONTENDERS = {
    OURS: Entry("ours", "ours", "Ours", {"kernels": "auto"}),
    "composed": Entry("ours, composed", "ours", "Ours", {"kernels": "composed"}),
    "twin": Entry("twin, chunked", "twin", "Twin"),
    "twin-compile": Entry(
        "twin, compiled",
        "twin",
        "Twin",
        {"compiled": True},
        dict.fromkeys(["forward-8192", "forward+backward-8192", "forward+backward-2048-fp64"], _UNROLLED),
    ),
    "hf": Entry("transformers", "hf", "Transformers"),
    "tuned": Entry("tuned", "tuned", "Tuned"),
    "tuned-compile": Entry("tuned, compiled", "tuned", "Tuned", {"compiled": True}),
}
"""All contenders by name; the first of those that run is what the others are compared with."""
