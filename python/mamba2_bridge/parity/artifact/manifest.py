"""What an artifact's ``manifest.json`` says: everything but the numbers, and where those lie.

========== ===============================================================================================
format     ``mamba2_bridge parity artifact``; `version` of it; `sha256` of all the rest
versions   of the packages that recorded it; `runner` and `dtype` that computed; `seed` where there was one
case       name, config, optimizer, by_token, untrained; tensors: params; of batches inputs, upstream, target
stages     what makes and takes what; `intermediates` among the tensors of the forward pass
forward    tensors in the order in which they were made; `backward`; `steps`, a list for each
own_losses noise floors by name; `fed_losses` those of stages that are fed; null where none were recorded
========== ===============================================================================================

A tensor is an object with the attributes of `Entry`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mamba2_bridge.checkpoint import from_json, to_json
from mamba2_bridge.exceptions import CheckpointError, ConfigError
from mamba2_bridge.parity.artifact.fields import Fields
from mamba2_bridge.parity.cases import AdamW
from mamba2_bridge.parity.stages import Stage
from mamba2_bridge.parity.tolerances import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mamba2_bridge.parity.artifact.tensors import Entry
    from mamba2_bridge.parity.cases import DType

MANIFEST = "manifest.json"
FORMAT = "mamba2_bridge parity artifact"
VERSION = 1


@dataclass(frozen=True)
class BatchEntries:
    """Where the arrays of a `Batch` lie."""

    inputs: tuple[Entry, ...]
    upstream: tuple[Entry, ...]
    target: Entry | None


@dataclass(frozen=True)
class CaseEntries:
    """A `Case`, and where its arrays lie."""

    name: str
    config: Mapping[str, Any]
    optimizer: AdamW | None
    by_token: bool
    untrained: tuple[str, ...]
    params: tuple[Entry, ...]
    batches: tuple[BatchEntries, ...]


@dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself; the attributes are those of the file."""

    versions: Mapping[str, str]
    runner: str
    dtype: DType
    seed: int | None
    case: CaseEntries
    stages: tuple[Stage, ...]
    intermediates: tuple[str, ...]
    forward: tuple[Entry, ...]
    backward: tuple[Entry, ...]
    steps: tuple[tuple[Entry, ...], ...]
    own_losses: Mapping[str, float] | None
    fed_losses: Mapping[str, float] | None

    @property
    def entries(self) -> Iterator[Entry]:
        """Every tensor of the artifact."""
        yield from self.case.params
        for batch in self.case.batches:
            yield from (*batch.inputs, *batch.upstream)
            if batch.target is not None:
                yield batch.target
        yield from (*self.forward, *self.backward)
        for step in self.steps:
            yield from step

    def to_text(self) -> str:
        """Return the file's content.

        Raises
        ------
        ConfigError
            A case's config that JSON can't hold.
        """
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        try:
            content["case"]["config"] = to_json(content["case"]["config"])
            return json.dumps({**content, "sha256": _checksum(content)}, indent=1, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the case {self.case.name} can't be written as JSON: {error}") from error


def read_manifest(folder: Path) -> Manifest:
    """Read and check an artifact's manifest.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    CheckpointError
        It is no artifact, one of a newer version, or damaged, by field.
    """
    path = folder / MANIFEST
    content = _content(folder, path)
    fields = Fields(content, str(path))
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format must be {FORMAT!r}, got {content.get('format')!r}")
    version = fields.integer("version")
    if version != VERSION:
        what = (
            "a newer release of mamba2_bridge wrote it" if version > VERSION else "there never was such a one"
        )
        raise CheckpointError(f"{path}: version must be {VERSION}, got {version}: {what}")
    expected = fields.text("sha256")
    found = _checksum({name: value for name, value in content.items() if name != "sha256"})
    if found != expected:
        raise CheckpointError(f"{path}: what it says should have SHA-256 {expected}, got {found}")
    return _checked(_manifest(fields), str(path))


def is_artifact(folder: Path) -> bool:
    """Whether a folder holds an artifact, of whatever version and in whatever state."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def _content(folder: Path, path: Path) -> dict[str, Any]:
    if not folder.exists():
        raise FileNotFoundError(f"there is no artifact {folder}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{folder}: no artifact, it has no {MANIFEST}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: no JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must be a JSON object, got {type(content).__name__}")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _manifest(fields: Fields) -> Manifest:
    dtype: Any = fields.choice("dtype", DTYPES)
    return Manifest(
        versions=fields.texts_by_name("versions"),
        runner=fields.text("runner"),
        dtype=dtype,
        seed=None if fields.is_null("seed") else fields.integer("seed"),
        case=_case(fields.inner("case")),
        stages=tuple(_stage(stage) for stage in fields.inners("stages")),
        intermediates=fields.texts("intermediates"),
        forward=fields.entries("forward"),
        backward=fields.entries("backward"),
        steps=fields.lists_of_entries("steps"),
        own_losses=fields.losses("own_losses"),
        fed_losses=fields.losses("fed_losses"),
    )


def _case(fields: Fields) -> CaseEntries:
    try:
        config: Any = from_json(fields.mapping("config"))
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{fields.where}: config can't be read: {error}") from None
    return CaseEntries(
        name=fields.text("name"),
        config=config,
        optimizer=None if fields.is_null("optimizer") else _optimizer(fields.inner("optimizer")),
        by_token=fields.flag("by_token"),
        untrained=fields.texts("untrained"),
        params=fields.entries("params"),
        batches=tuple(_batch(batch) for batch in fields.inners("batches")),
    )


def _batch(fields: Fields) -> BatchEntries:
    target = None if fields.is_null("target") else fields.entry("target")
    return BatchEntries(fields.entries("inputs"), fields.entries("upstream"), target)


def _optimizer(fields: Fields) -> AdamW:
    first, second = fields.numbers("betas", 2)
    return AdamW(
        lr=fields.number("lr"),
        betas=(first, second),
        eps=fields.number("eps"),
        weight_decay=fields.number("weight_decay"),
        undecayed=fields.texts("undecayed"),
    )


def _stage(fields: Fields) -> Stage:
    return Stage(fields.text("name"), fields.texts("makes"), fields.texts("takes"), fields.texts("params"))


def _checked(manifest: Manifest, where: str) -> Manifest:
    """Check what no field tells alone."""
    files: dict[str, str] = {}
    for entry in manifest.entries:
        if entry.file in files:
            raise CheckpointError(f"{where}: {entry.file} is there for {files[entry.file]} and {entry.name}")
        files[entry.file] = entry.name
    made = {entry.name for entry in manifest.forward}
    if unmade := [name for name in manifest.intermediates if name not in made]:
        raise CheckpointError(f"{where}: intermediates must be among forward, got {', '.join(unmade)}")
    if not manifest.case.batches:
        raise CheckpointError(f"{where}: case: batches must hold a batch, got none")
    steps = len(manifest.case.batches) if manifest.case.optimizer is not None else 0
    if len(manifest.steps) != steps:
        raise CheckpointError(f"{where}: steps must be {steps}, one a batch, got {len(manifest.steps)}")
    return manifest
