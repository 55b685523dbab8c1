"""From a runner and a case to an artifact, one tensor at a time.

Nothing is held beyond what the runner itself holds.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import CheckpointError
from mamba2_bridge.files import replaced_folder
from mamba2_bridge.parity.artifact.manifest import (
    MANIFEST,
    BatchEntries,
    CaseEntries,
    Manifest,
    is_artifact,
)
from mamba2_bridge.parity.artifact.tensors import SUFFIX, read_tensors, write_tensor, write_tensors
from mamba2_bridge.parity.lazy import subset
from mamba2_bridge.parity.outcome import DRAWS, must_repeat, outcome_of, own_losses
from mamba2_bridge.parity.report import versions
from mamba2_bridge.parity.runner import Feed
from mamba2_bridge.parity.validity import check_case, check_dtypes

if TYPE_CHECKING:
    from os import PathLike

    from mamba2_bridge.parity.artifact.tensors import Entry
    from mamba2_bridge.parity.cases import Batch, Case, DType
    from mamba2_bridge.parity.outcome import Outcome
    from mamba2_bridge.parity.runner import Runner


def record(
    runner: Runner,
    case: Case,
    path: str | PathLike[str],
    *,
    dtype: DType = "float64",
    floors: bool = True,
    draws: int = DRAWS,
    seed: int | None = None,
) -> None:
    """Run a case and write all that it gives, and the case itself, to a folder.

    The folder is made beside ``path`` and renamed: at any moment the old artifact is there or the new one.

    Parameters
    ----------
    runner
        What computes.
    case
        What it computes.
    path
        The folder; replaced where it holds an artifact.
    dtype
        Of the model. A reference is best recorded in fp64.
    floors
        Whether to record noise floors, too, in fp64 alone. They take several more runs in both dtypes, whose
        tensors wait on the disk.
    draws
        Runs that tell a noise floor, as for `mamba2_bridge.parity.compare.compare`.
    seed
        What the case was drawn from, for whoever reads the manifest.

    Raises
    ------
    CheckpointError
        ``path`` is there and holds something else: it is not replaced.
    DTypeError
        A tensor of an element type that no artifact holds.
    ConfigError
        A case whose config JSON can't hold, or that would compare less than it seems to; a runner that makes
        something else of it in another run.
    OSError
        The folder can't be written.
    """
    check_case(case)
    check_dtypes([dtype])
    target = Path(path).resolve()  # a link keeps leading to what is replaced
    if target.exists() and not _is_replaceable(target):
        raise CheckpointError(
            f"{target} is there and holds other things than an artifact of mamba2_bridge: it is not replaced"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replaced_folder(target) as staged:
        manifest = _recorded(runner, case, staged, dtype, draws if floors and dtype == "float64" else 0, seed)
        (staged / MANIFEST).write_text(manifest.to_text(), encoding="utf-8")


def _recorded(runner: Runner, case: Case, root: Path, dtype: DType, draws: int, seed: int | None) -> Manifest:
    entries = _write_case(root, case)
    outcome = outcome_of(runner, case, dtype)
    forward = write_tensors(root, "forward", outcome.forward)
    backward = write_tensors(root, "backward", outcome.backward)
    steps = tuple(
        write_tensors(root, f"step{number}", step) for number, step in enumerate(outcome.steps, start=1)
    )
    own = fed = None
    if draws:
        made = replace(outcome, forward=read_tensors(root, forward), backward=read_tensors(root, backward))
        must_repeat(runner, case, made)
        own = _losses(runner, case, root, draws)
        if runner.feeds and outcome.intermediates:
            fed = _losses(runner, case, root, draws, _feed(root, outcome, forward, backward))
    return Manifest(
        versions=versions(),
        runner=outcome.name,
        dtype=dtype,
        seed=seed,
        case=entries,
        stages=tuple(outcome.stages),
        intermediates=tuple(outcome.intermediates),
        forward=forward,
        backward=backward,
        steps=steps,
        own_losses=own,
        fed_losses=fed,
    )


def _write_case(root: Path, case: Case) -> CaseEntries:
    params = write_tensors(root, "params", case.params)
    batches = tuple(_write_batch(root, f"batch{i}", batch) for i, batch in enumerate(case.batches))
    return CaseEntries(
        case.name, dict(case.config), case.optimizer, case.by_token, case.untrained, params, batches
    )


def _write_batch(root: Path, folder: str, batch: Batch) -> BatchEntries:
    inputs = write_tensors(root, f"{folder}/inputs", batch.inputs)
    upstream = write_tensors(root, f"{folder}/upstream", batch.upstream)
    target = None
    if batch.target is not None:
        target = write_tensor(root, f"{folder}/target{SUFFIX}", "target", batch.target)
    return BatchEntries(inputs, upstream, target)


def _losses(runner: Runner, case: Case, root: Path, draws: int, feed: Feed | None = None) -> dict[str, float]:
    """Measure noise floors; what the runs in fp64 give waits on the disk."""
    spool = root / "floors"

    def hold(outcome: Outcome) -> Outcome:
        shutil.rmtree(spool, ignore_errors=True)
        return replace(
            outcome,
            forward=read_tensors(root, write_tensors(root, "floors/forward", outcome.forward)),
            backward=read_tensors(root, write_tensors(root, "floors/backward", outcome.backward)),
        )

    losses = own_losses(runner, case, feed, draws, hold=hold)
    shutil.rmtree(spool)
    return losses


def _feed(root: Path, outcome: Outcome, forward: tuple[Entry, ...], backward: tuple[Entry, ...]) -> Feed:
    """Feed every stage what was recorded."""
    values, gradients = read_tensors(root, forward), read_tensors(root, backward)
    names = outcome.intermediates
    return Feed(subset(values, names), subset(gradients, [name for name in names if name in gradients]))


def _is_replaceable(target: Path) -> bool:
    """Tell an empty folder, or an artifact and nothing beside it, from anything else that bears the name."""
    if not target.is_dir():
        return False
    names = {path.name for path in target.iterdir()}
    return not names or (is_artifact(target) and all(map(_OWN.fullmatch, names)))


_OWN = re.compile(rf"{re.escape(MANIFEST)}|params|forward|backward|(batch|step)\d+")
