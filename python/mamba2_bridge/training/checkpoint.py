"""The last checkpoint: all of a trainer's state; to go on from it is as not to have stopped, to the bit.

``model/`` is a pretrained folder, ``state.npz`` holds moments, averaged weights and the examples still to
come, ``state.json`` the numbers, the generator and the record.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.exceptions import CheckpointError, Mamba2BridgeError
from mamba2_bridge.files import read_json, replaced_folder, write_json
from mamba2_bridge.model import Mamba2Forecaster
from mamba2_bridge.training.loop import Progress, Trainer
from mamba2_bridge.training.record import Record

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_AVERAGE, _OPTIMIZER = "average/", "optimizer/"

# what reading files that are cut, altered or not there raises
_DAMAGE = (
    *(Mamba2BridgeError, FileNotFoundError, zipfile.BadZipFile),
    *(KeyError, TypeError, ValueError, EOFError, AttributeError, OverflowError),
)


def save(trainer: Trainer, folder: Path) -> None:
    """Write the state of `trainer` in place of `folder`.

    Raises
    ------
    OSError
        If it can't be written; what lay at `folder` is then as it was.
    """
    progress = trainer.progress
    arrays = {_AVERAGE + name: value for name, value in trainer.average.items()}
    arrays |= {_OPTIMIZER + name: np.asarray(value) for name, value in trainer.optimizer.state_dict().items()}
    with replaced_folder(folder) as beside:
        trainer.model.save_pretrained(beside / "model")
        with (beside / "state.npz").open("wb") as file:
            np.savez(file, allow_pickle=False, rest=progress.rest, **arrays)
        write_json(
            beside / "state.json",
            {
                "step": progress.step,
                "best_loss": progress.best_loss,
                "best_step": progress.best_step,
                "without_best": progress.without_best,
                "order": trainer.order.bit_generator.state,
                "record": progress.record.to_dict(),
            },
        )


def load(trainer: Trainer, folder: Path) -> None:
    """Put the state that :func:`save` wrote into a trainer made of the same config and data.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    CheckpointError
        If it is not complete, or of another model.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    try:
        state = read_json(folder / "state.json")
        with (folder / "state.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        progress = Progress(
            step=state["step"],
            best_loss=state["best_loss"],
            best_step=state["best_step"],
            without_best=state["without_best"],
            rest=arrays["rest"],
            record=Record.from_dict(state["record"]),
        )
        _check(progress, trainer)
        saved = Mamba2Forecaster.from_pretrained(folder / "model", dtype=trainer.config.dtype)
        trainer.model.load_state_dict(saved.state_dict())
        trainer.averaged.load_state_dict(_under(arrays, _AVERAGE))
        optimizer = _under(arrays, _OPTIMIZER)
        trainer.optimizer.load_state_dict({k: v if v.ndim else v.item() for k, v in optimizer.items()})
        trainer.order.bit_generator.state = state["order"]
    except _DAMAGE as error:
        what = f"{error} is missing" if type(error) is KeyError else str(error)
        raise CheckpointError(f"training can't go on from {folder}: {what}") from error
    trainer.average = _under(arrays, _AVERAGE)
    trainer.progress = progress


def _check(progress: Progress, trainer: Trainer) -> None:
    """Check the numbers of ``state.json`` and the examples still to come: the next step rests on them."""
    best_step = progress.best_step if progress.best_loss is not None else 0
    for name, value, most in (
        ("step", progress.step, trainer.config.steps),
        ("best_step", best_step, progress.step),
        ("without_best", progress.without_best, progress.step),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise CheckpointError(
                f"state.json: {name} must be a whole number from 0 to {most}, got {value!r}"
            )
    best = progress.best_loss
    if best is not None and (isinstance(best, bool) or not isinstance(best, int | float)):
        raise CheckpointError(f"state.json: best_loss must be a number, got {best!r}")
    if len(progress.record.losses) != progress.step:
        raise CheckpointError(
            f"state.json: {len(progress.record.losses)} losses are recorded of {progress.step} steps"
        )
    if progress.rest.ndim != 1 or not np.isin(progress.rest, trainer.train).all():
        raise CheckpointError("state.npz: rest holds something that is no training example")


def _under(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose name starts with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
