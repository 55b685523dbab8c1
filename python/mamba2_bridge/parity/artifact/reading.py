"""From an artifact to an outcome and its case, whose arrays are read when they are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from mamba2_bridge.parity.artifact.manifest import BatchEntries, Manifest, read_manifest
from mamba2_bridge.parity.artifact.tensors import check_file, read_tensor, read_tensors
from mamba2_bridge.parity.cases import Batch, Case
from mamba2_bridge.parity.outcome import Outcome

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True)
class Artifact:
    """What a side made of a case, read from a folder.

    Attributes
    ----------
    path
        The folder.
    manifest
        All that it says of itself.
    outcome
        As `mamba2_bridge.parity.outcome.run` gives one.
    case
        What was computed: a runner can do it again.
    """

    path: Path
    manifest: Manifest
    outcome: Outcome
    case: Case

    def __str__(self) -> str:
        return f"{self.manifest.runner} in {self.manifest.dtype}, recorded"

    def verify(self) -> None:
        """Read every array once.

        Raises
        ------
        CheckpointError
            At the first file that is missing or damaged.
        """
        for entry in self.manifest.entries:
            read_tensor(self.path, entry)


def read(path: str | PathLike[str]) -> Artifact:
    """Read an artifact's manifest and check that its files are there.

    Arrays are read whenever they are looked at; one whose file is missing or damaged by then is a
    `CheckpointError`.

    Parameters
    ----------
    path
        A folder that `record` wrote.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    CheckpointError
        It holds no artifact, one of a newer version, or a damaged one; the message names the file, what was
        expected and what came.
    """
    root = Path(path)
    manifest = read_manifest(root)
    for entry in manifest.entries:
        check_file(root, entry)
    case = _case(root, manifest)
    return Artifact(root, manifest, _outcome(root, manifest, case), case)


def _outcome(root: Path, manifest: Manifest, case: Case) -> Outcome:
    return Outcome(
        manifest.runner,
        manifest.dtype,
        read_tensors(root, manifest.forward),
        read_tensors(root, manifest.backward),
        [read_tensors(root, step) for step in manifest.steps],
        manifest.intermediates,
        manifest.stages,
        manifest.own_losses or {},
        case.trained if case.goes_back else (),
    )


def _case(root: Path, manifest: Manifest) -> Case:
    case = manifest.case
    batches = _Batches(root, case.batches)
    params = read_tensors(root, case.params)
    return Case(case.name, params, batches, case.config, case.optimizer, case.by_token, case.untrained)


class _Batches(Sequence[Batch]):
    """Batches whose targets, too, are read when they are looked at."""

    def __init__(self, root: Path, entries: Sequence[BatchEntries]) -> None:
        self._root, self._entries = root, entries

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | Sequence[Batch]:
        if isinstance(index, slice):
            return _Batches(self._root, self._entries[index])
        entries = self._entries[index]
        return Batch(
            read_tensors(self._root, entries.inputs),
            read_tensors(self._root, entries.upstream),
            None if entries.target is None else read_tensor(self._root, entries.target),
        )

    def __len__(self) -> int:
        return len(self._entries)
