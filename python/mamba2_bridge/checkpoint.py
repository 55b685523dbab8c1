"""A model as a folder: ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mamba2_bridge import _native
from mamba2_bridge.exceptions import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from mamba2_bridge.varmap import VarMap

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_KIND = "model_class"
_FORMAT = "format"
_OURS = "mamba2_bridge"


def save(folder: str | PathLike[str], kind: str, config: Mapping[str, Any], varmap: VarMap) -> None:
    """Write a model to ``folder``: made beside it and renamed, so it is there whole or not at all.

    Parameters
    ----------
    folder
        Replaced with all that is in it, where it is such a folder already or empty.
    kind
        Name of the model's class.
    config
        `to_dict` of the model's configuration.
    varmap
        The parameters.
    """
    target = Path(folder).resolve()  # a link keeps leading to what is replaced
    if target.exists() and not _is_replaceable(target):
        raise CheckpointError(f"{target} is there and holds no model of mamba2_bridge: it is not replaced")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=target.parent) as beside:
        staged = Path(beside) / "model"
        staged.mkdir()
        written = {_FORMAT: _OURS, _KIND: kind, **to_json(config)}
        text = json.dumps(written, indent=2, allow_nan=False) + "\n"
        _native.write_file(staged / CONFIG, text.encode())
        varmap.save(staged / WEIGHTS)
        _native.replace_folder(staged, target)


def read_config(folder: str | PathLike[str], kind: str, config_class: type[Any]) -> Any:
    """Read the configuration of a folder that holds a model of the class named ``kind``."""
    path = Path(folder) / CONFIG
    values = _read(path)
    del values[_FORMAT]
    found = values.pop(_KIND, None)
    if found != kind:
        raise CheckpointError(f"{path}: holds a {found}, not a {kind}")
    try:
        return config_class.from_dict(from_json(values))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def kind_of(folder: str | PathLike[str]) -> str:
    """Name of the class whose model a folder holds."""
    return str(_read(Path(folder) / CONFIG).get(_KIND))


def weights(folder: str | PathLike[str]) -> Path:
    """Path of the parameters in a folder."""
    return Path(folder) / WEIGHTS


def _is_replaceable(target: Path) -> bool:
    """Tell an empty folder, or one that `save` wrote, from anything else that bears the name."""
    return target.is_dir() and (not any(target.iterdir()) or _is_ours(target / CONFIG))


def _is_ours(config: Path) -> bool:
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get(_FORMAT) == _OURS


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(values, dict) or values.get(_FORMAT) != _OURS:
        raise CheckpointError(f"{path}: not a configuration that mamba2_bridge wrote")
    return values


def to_json(value: Any) -> Any:
    """Infinity as ``{"__float__": "Infinity"}``: JSON has no number for it."""
    if isinstance(value, float) and math.isinf(value):
        return {"__float__": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    return value


def from_json(value: Any) -> Any:
    """Read what `to_json` wrote; lists become tuples."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _limit(inner) if key == "dt_limit" else from_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(from_json(inner) for inner in value)
    return value


def _limit(value: Any) -> Any:
    """Read dt_limit: others write infinity as null, too."""
    if isinstance(value, list):
        return tuple(math.inf if bound is None else from_json(bound) for bound in value)
    return from_json(value)
