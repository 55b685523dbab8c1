"""The golden cases: inputs and what they must give, as numpy arrays, for whichever framework is tested.

They were computed in fp64 by a plain recurrence. Inputs are stored as float32, so they are exact in either
dtype.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import safe_open

from mamba2_bridge.parity.cases import Batch, Case, DType
from mamba2_bridge.parity.outcome import outcome_of

if TYPE_CHECKING:
    from mamba2_bridge.parity.runner import Runner

FOLDER = Path(__file__).parent / "golden"
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class BlockCase(Case):
    """One mixer, forward and backward: a case of the parity package, and what it must give.

    `expected` and `own_loss` (see parity.tolerances) are named as `results` names them; `mask`
    (b, l) and `seq_idx` (b, l) are None where the case has none.
    """

    mask: Array | None
    seq_idx: Array | None
    expected: dict[str, Array]
    own_loss: dict[str, float]


@dataclass(frozen=True)
class SsdCase:
    """The scan alone, forward and backward.

    `inputs`: x (b, l, h, p), dt (b, l, h), A (h), B, C (b, l, g, n) and, where the case has them, D and init
    (b, h, p, n). `upstream`: y, final. `expected` and `own_loss` are keyed y, final, grad.<input>.
    """

    name: str
    inputs: dict[str, Array]
    upstream: dict[str, Array]
    expected: dict[str, Array]
    own_loss: dict[str, float]

    def __str__(self) -> str:
        return self.name

    def astype(self, dtype: DTypeLike) -> SsdCase:
        """The same case with its inputs in `dtype`; what is expected stays fp64."""
        return replace(
            self,
            inputs={name: value.astype(dtype) for name, value in self.inputs.items()},
            upstream={name: value.astype(dtype) for name, value in self.upstream.items()},
        )


def blocks(*, masked: bool = False) -> list[BlockCase]:
    """The block cases without mask and seq_idx; with `masked`, all of them."""
    cases = [_block(path) for path in sorted(FOLDER.glob("block_*.safetensors"))]
    return [case for case in cases if masked or (case.mask is None and case.seq_idx is None)]


def ssds() -> list[SsdCase]:
    """The cases of the scan alone."""
    return [_ssd(path) for path in sorted(FOLDER.glob("ssd_*.safetensors"))]


def block(name: str) -> BlockCase:
    """One block case by its file's stem."""
    return _block(FOLDER / f"{name}.safetensors")


def mamba2_config(config: dict[str, Any]) -> dict[str, Any]:
    """Translate a golden file's config to Mamba2Config's keywords."""
    config = dict(config)
    config["norm_eps"] = config.pop("eps")
    low, high = config["dt_limit"]
    config["dt_limit"] = (low, math.inf if high is None else high)
    return config


def results(runner: Runner, case: Case, dtype: DType) -> dict[str, Array]:
    """What a runner makes of a case, without what lies between: outputs, states, gradients."""
    outcome = outcome_of(runner, case, dtype)
    made = {**outcome.forward, **{f"grad.{name}": outcome.backward[name] for name in outcome.backward}}
    between = {*outcome.intermediates, *(f"grad.{name}" for name in outcome.intermediates)}
    return {name: made[name] for name in made if name not in between}


def _block(path: Path) -> BlockCase:
    metadata, tensors = _read(path, "block")
    return BlockCase(
        name=path.stem,
        config=mamba2_config(json.loads(metadata["config"])),
        params=_under("param.", tensors),
        batches=[Batch(_inputs(tensors), _under("up.", tensors))],
        mask=tensors.get("mask"),
        seq_idx=tensors.get("seq_idx"),
        expected=_results(tensors, ("out", "final.", "grad.")),
        own_loss=json.loads(metadata["fp32"]),
    )


def _ssd(path: Path) -> SsdCase:
    metadata, tensors = _read(path, "ssd")
    names = ("x", "dt", "A", "B", "C", "D", "init")
    return SsdCase(
        name=path.stem,
        inputs={name: tensors[name] for name in names if name in tensors},
        upstream=_under("up.", tensors),
        expected=_results(tensors, ("y", "final", "grad.")),
        own_loss=json.loads(metadata["fp32"]),
    )


def _read(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Array]]:
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        assert metadata["kind"] == kind, f"{path} is of kind {metadata['kind']}, not {kind}"
        return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _inputs(tensors: dict[str, Array]) -> dict[str, Array]:
    return {name: value for name, value in tensors.items() if name == "u" or name.startswith("init.")}


def _under(prefix: str, tensors: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _results(tensors: dict[str, Array], starts: tuple[str, ...]) -> dict[str, Array]:
    results = {name: value for name, value in tensors.items() if name.startswith(starts)}
    assert all(value.dtype == np.float64 for value in results.values())
    return results
