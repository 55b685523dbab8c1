"""A whole run: read, split, scale, train, test against the baselines, write it all down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mamba2_bridge._extras import require
from mamba2_bridge.config import Mamba2Config, Mamba2ForecasterConfig
from mamba2_bridge.exceptions import ConfigError, DataError
from mamba2_bridge.files import replaced_file, write_json
from mamba2_bridge.model import Mamba2Forecaster
from mamba2_bridge.training import checkpoint
from mamba2_bridge.training.baselines import Scores, baseline_scores, scores
from mamba2_bridge.training.calendar import automatic_harmonics, calendar_inputs
from mamba2_bridge.training.examples import Examples
from mamba2_bridge.training.loop import StepReport, Trainer, answers
from mamba2_bridge.training.run import RunFolder, RunInfo
from mamba2_bridge.training.scaling import Scaling, fit_scaling
from mamba2_bridge.training.table import Table, read_table
from mamba2_bridge.training.windows import Split, split, windows_of

if TYPE_CHECKING:
    from mamba2_bridge.training.config import TrainConfig

OnStep = Callable[[StepReport], None]


@dataclass(frozen=True)
class TrainResult:
    """What a finished run came to.

    Attributes
    ----------
    folder : RunFolder
        Where everything lies.
    config : TrainConfig
        With the number of calendar harmonics settled.
    test : Scores
        The forecaster's errors on the test part, in the target's units.
    baselines : mapping of str to Scores
        The same of each baseline.
    steps, best_step : int
        Steps made; the step whose weights were the best on the validation part, and were tested.
    validation_loss : float
        Their loss.
    notes : tuple of str
        What was done to the data.
    """

    folder: RunFolder
    config: TrainConfig
    test: Scores
    baselines: Mapping[str, Scores]
    steps: int
    best_step: int
    validation_loss: float
    notes: tuple[str, ...]

    @property
    def beaten(self) -> dict[str, bool]:
        """By baseline, whether the forecaster's root mean square error is below its."""
        return {name: self.test.rmse < other.rmse for name, other in self.baselines.items()}

    @property
    def beats_baselines(self) -> bool:
        """Whether all of them are beaten."""
        return all(self.beaten.values())

    def forecaster(self) -> Mamba2Forecaster:
        """Load the best weights."""
        return Mamba2Forecaster.from_pretrained(
            self.folder.best, dtype=self.config.dtype, device=self.config.device
        )


def train(
    data: str | Path | pd.DataFrame,
    config: TrainConfig,
    out: str | Path,
    *,
    on_step: OnStep | None = None,
) -> TrainResult:
    """Train a forecaster on a time series, and test it.

    Parameters
    ----------
    data : path or pandas.DataFrame
        A CSV file with a header, or a data frame.
    config : TrainConfig
    out : path
        Folder for the run; it must not be there, or be empty.
    on_step : callable, optional
        Called after each step with a :class:`~mamba2_bridge.training.loop.StepReport`. If it raises
        KeyboardInterrupt, training stops as on Ctrl-C.

    Raises
    ------
    DataError
        If the series can't be used; the message names row and column.
    ConfigError
        If the config and the series don't fit, or `out` is taken.
    FileNotFoundError, PermissionError, OSError
        If a file can't be read or written.
    NonFiniteError
        If a loss, a gradient or a weight is no longer finite.
    KeyboardInterrupt
        On Ctrl-C, when everything is saved; the message says how to go on.
    """
    require("matplotlib", "mamba2_bridge.training")
    folder = RunFolder(Path(out))
    table = _read(data, config)
    if config.calendar is None:
        config = config.with_calendar(automatic_harmonics(table))
    parts = _split(table, config)
    scaling = _fit_scaling(table, parts, config)
    trainer = _trainer(table, parts, scaling, config)
    for ends in parts.ends.values():
        trainer.examples.check_finite(ends, table.columns)
    folder.create()
    source = None if isinstance(data, pd.DataFrame) else str(Path(data).absolute())
    RunInfo(config, scaling, source, table.digest()).write(folder)
    return _train_and_test(trainer, table, parts, folder, on_step)


def resume(
    run: str | Path, data: str | Path | pd.DataFrame | None = None, *, on_step: OnStep | None = None
) -> TrainResult:
    """Go on with a run that was interrupted, exactly as if it had not been.

    Parameters
    ----------
    run : path
        The run's folder.
    data : path or pandas.DataFrame, optional
        The same series, if it has moved or was a data frame.
    on_step : callable, optional
        As in :func:`train`.

    Raises
    ------
    DataError
        If the series is not the one the run was started with.
    CheckpointError
        If a file of the run is damaged or missing.
    """
    require("matplotlib", "mamba2_bridge.training")
    folder = RunFolder(Path(run))
    info = RunInfo.read(folder)
    data = info.data if data is None else data
    if data is None:
        raise ConfigError(f"{run} was trained on a data frame: give it again as data")
    table = _read(data, info.config)
    if table.digest() != info.digest:
        raise DataError(
            f"{table.source} is not the series that {run} was started with: its values have changed"
        )
    parts = _split(table, info.config)
    trainer = _trainer(table, parts, info.scaling, info.config)
    # there is none before the first validation: then it starts again
    if folder.last.exists():
        checkpoint.load(trainer, folder.last)
        if trainer.progress.best_step is not None:
            folder.check_best()
    return _train_and_test(trainer, table, parts, folder, on_step)


def _read(data: str | Path | pd.DataFrame, config: TrainConfig) -> Table:
    return read_table(
        data, target=config.target, features=config.features, time=config.time, missing=config.missing
    )


def _split(table: Table, config: TrainConfig) -> Split:
    """Split, and check that the period fits before anything takes time."""
    parts = split(
        table, window=config.window, horizon=config.horizon, validation=config.validation, test=config.test
    )
    if config.period is not None:
        back = config.period * -(-config.horizon // config.period)
        if parts.targets("test")[0] < back:
            raise ConfigError(
                f"period {config.period} is too long: the first test row is {parts.targets('test')[0] + 1},"
                f" and no row lies {back} before it"
            )
    return parts


def _fit_scaling(table: Table, parts: Split, config: TrainConfig) -> Scaling:
    ends = parts.ends["train"]
    return fit_scaling(
        config.normalise,
        table.values[: parts.train_rows],
        windows_of(table.values, ends, config.window),
        table.values[ends + config.horizon, 0],
        table.columns,
    )


def _trainer(table: Table, parts: Split, scaling: Scaling, config: TrainConfig) -> Trainer:
    calendar = calendar_inputs(table, config.calendar or 0)
    examples = Examples(table.values, calendar, scaling, config.window, config.horizon, config.dtype)
    mixer = Mamba2Config(
        d_model=config.d_model,
        d_state=config.d_state,
        d_conv=config.d_conv,
        expand=config.expand,
        headdim=config.headdim,
        chunk_size=config.chunk_size,
    )
    shape = Mamba2ForecasterConfig(mixer=mixer, n_layer=config.n_layer, d_input=examples.d_input, d_output=1)
    model, averaged = (
        Mamba2Forecaster(shape, dtype=config.dtype, device=config.device, seed=config.seed) for _ in range(2)
    )
    return Trainer(
        model=model,
        averaged=averaged,
        examples=examples,
        train=parts.ends["train"],
        validation=parts.ends["validation"],
        config=config,
    )


def _train_and_test(
    trainer: Trainer, table: Table, parts: Split, folder: RunFolder, on_step: OnStep | None
) -> TrainResult:
    def save_last() -> None:
        checkpoint.save(trainer, folder.last)
        write_json(folder.metrics, trainer.progress.record.to_dict())

    try:
        trainer.run(
            save_best=lambda: trainer.averaged.save_pretrained(folder.best),
            save_last=save_last,
            on_step=on_step,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped after step {trainer.progress.step} of {trainer.config.steps}, everything is saved;"
            f" go on with: mamba2-bridge train --resume {folder.path}"
        ) from None
    return _test(trainer, table, parts, folder)


def _test(trainer: Trainer, table: Table, parts: Split, folder: RunFolder) -> TrainResult:
    """Test the best weights, compare, and write results, curves and predictions."""
    from mamba2_bridge.training.plots import write_report  # noqa: PLC0415 (matplotlib takes a while)

    config, examples, progress = trainer.config, trainer.examples, trainer.progress
    if progress.best_loss is None or progress.best_step is None:
        raise ConfigError(f"{folder.path} has no best checkpoint: training made no validation")
    best = Mamba2Forecaster.from_pretrained(folder.best, dtype=config.dtype, device=config.device)
    ends, rows = parts.ends["test"], parts.targets("test")
    predictions = examples.predictions(ends, answers(best, examples, ends))
    truth = table.values[rows, 0]
    result = TrainResult(
        folder=folder,
        config=config,
        test=scores(predictions, truth),
        baselines=baseline_scores(table.values, examples.calendar, parts, period=config.period),
        steps=progress.step,
        best_step=progress.best_step,
        validation_loss=progress.best_loss,
        notes=table.notes,
    )
    labels = np.array(table.labels())[rows]
    frame = pd.DataFrame({config.time or "row": labels, config.target: truth, "prediction": predictions})
    with replaced_file(folder.test_table) as beside:
        frame.to_csv(beside, index=False, lineterminator="\n")
    write_json(
        folder.metrics,
        {
            "test": {
                "model": result.test.to_dict(),
                "baselines": {name: one.to_dict() for name, one in result.baselines.items()},
                "beats_baselines": result.beats_baselines,
                "examples": len(rows),
            },
            "steps": result.steps,
            "best_step": result.best_step,
            "best_validation_loss": result.validation_loss,
            "notes": list(result.notes),
            **progress.record.to_dict(),
        },
    )
    write_report(
        result, progress.record, frame, table.time.iloc[rows] if table.time is not None else rows + 1
    )
    return result
