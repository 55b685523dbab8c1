"""Proof that two implementations are one function with one set of gradients: the first wrong tensor, by name.

`cases` says what is compared, `runner` what a side has to be, `stages` which part of a model makes which
tensor; `compare` runs both sides, `equality` says what equal means and `tolerances` how equal, `validity`
what no comparison could tell, `report` where it first goes wrong. `native` and `in_torch` hold the sides that
come with the package, `names` other names and layouts of
parameters. docs/parity.md shows how to compare a model of one's own.
"""

from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.runner import Feed, Runner
from mamba2_bridge.parity.stages import Stage
from mamba2_bridge.parity.tolerances import DEFAULT, Policy, Tolerance

__all__ = [
    "DEFAULT",
    "AdamW",
    "Batch",
    "Case",
    "Feed",
    "LazyArrays",
    "ParityReport",
    "Policy",
    "Runner",
    "Stage",
    "Tolerance",
    "compare",
]
