"""The models that commands know by name, and the cases that they are given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mamba2_bridge import checkpoint
from mamba2_bridge._extras import require
from mamba2_bridge.config import Mamba2Config, Mamba2ForecasterConfig
from mamba2_bridge.exceptions import CheckpointError
from mamba2_bridge.parity.lazy import LazyArrays

if TYPE_CHECKING:
    from pathlib import Path

    from mamba2_bridge.parity.cases import Array, Arrays
    from mamba2_bridge.parity.runner import Runner

SIDES = ("native", "native:fused", "native:composed", "twin", "twin:chunked")


def side(name: str) -> Runner:
    """Make the runner of one of `SIDES`; importing torch only for the twin."""
    kind, _, form = name.partition(":")
    if kind == "native":
        from mamba2_bridge.parity.native import NativeRunner  # noqa: PLC0415

        return NativeRunner(form or "auto")
    from mamba2_bridge.parity.in_torch.twin import TwinRunner  # noqa: PLC0415 (needs torch)

    return TwinRunner("chunked" if form == "chunked" else "recurrence")


def checkpoint_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a folder that `save_pretrained` wrote, as cases have it."""
    kind = checkpoint.kind_of(folder)
    if kind == "Mamba2":
        config: dict[str, Any] = checkpoint.read_config(folder, kind, Mamba2Config).to_dict()
        return config
    if kind == "Mamba2Forecaster":
        fields = checkpoint.read_config(folder, kind, Mamba2ForecasterConfig).to_dict()
        return {**fields.pop("mixer"), **fields}
    raise CheckpointError(f"{folder} holds a {kind}; a Mamba2 or a Mamba2Forecaster can be recorded")


def checkpoint_params(folder: Path) -> Arrays:
    """Give the parameters in a folder that `save_pretrained` wrote, each read when it is looked at."""
    require("safetensors", "mamba2_bridge.cli")
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 (only now is it sure to be there)

    path = checkpoint.weights(folder)

    def read(name: str) -> Array:
        with safe_open(path, framework="numpy") as file:
            array: Array = file.get_tensor(name)
            return array

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
    except SafetensorError as error:
        raise CheckpointError(f"{path}: no sound safetensors file: {error}") from None
    return LazyArrays({name: partial(read, name) for name in names})
