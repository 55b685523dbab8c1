"""Using a run: predictions for a whole file, or row by row as they come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mamba2_bridge.exceptions import DataError
from mamba2_bridge.model import Mamba2Forecaster
from mamba2_bridge.training.calendar import calendar_inputs, waves_of_year
from mamba2_bridge.training.examples import Examples
from mamba2_bridge.training.loop import answers
from mamba2_bridge.training.run import RunFolder, RunInfo
from mamba2_bridge.training.scaling import Scaling, TrainScaling
from mamba2_bridge.training.table import Missing, read_table
from mamba2_bridge.training.windows import usable_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge.training.config import TrainConfig


@dataclass(frozen=True)
class Run:
    """The best forecaster of a run, with what it needs to be used on new data."""

    config: TrainConfig
    scaling: Scaling
    model: Mamba2Forecaster

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Load a run.

        Raises
        ------
        FileNotFoundError
            If there is no run, or it has no best checkpoint yet.
        CheckpointError
            If a file of the run is damaged or missing.
        """
        folder = RunFolder(Path(path))
        info = RunInfo.read(folder)
        if not folder.best.exists() and not folder.metrics.exists():
            raise FileNotFoundError(
                f"{folder.path} has no best checkpoint yet:"
                f" go on with mamba2-bridge train --resume {folder.path}"
            )
        folder.check_best()
        model = Mamba2Forecaster.from_pretrained(
            folder.best, dtype=info.config.dtype, device=info.config.device
        )
        return cls(info.config, info.scaling, model)

    def predict(self, data: str | Path | pd.DataFrame, *, missing: Missing | None = None) -> pd.DataFrame:
        """Predict from every whole window of a series, the last one included: what comes after the data.

        Parameters
        ----------
        data : path or pandas.DataFrame
            A series with the columns the run was trained on.
        missing : {"error", "interpolate"}, optional
            In place of the run's own.

        Returns
        -------
        pandas.DataFrame
            A row a prediction: ``row``, the number of the predicted row; its time, where there is a time
            column (after the data it is continued if all steps are equal, else empty); the target, empty
            where it is not known; ``prediction``. There is none from a window that ends at an interpolated
            cell, which was filled with the help of later rows.

        Raises
        ------
        DataError
            If the series can't be used, or is shorter than a window.
        """
        config = self.config
        table = read_table(
            data,
            target=config.target,
            features=config.features,
            time=config.time,
            missing=missing or config.missing,
        )
        ends = usable_ends(table, window=config.window)
        if not len(ends):
            raise DataError(
                f"{table.source} has {len(table)} rows: no whole window of {config.window} lies in it"
            )
        calendar = calendar_inputs(table, config.calendar or 0)
        examples = Examples(table.values, calendar, self.scaling, config.window, config.horizon, config.dtype)
        predictions = examples.predictions(ends, answers(self.model, examples, ends))
        rows = ends + config.horizon
        truth = np.where(table.filled[:, 0], np.nan, table.values[:, 0])
        truth = np.concatenate([truth, np.full(config.horizon, np.nan)])
        columns: dict[str, NDArray[Any]] = {"row": rows + 1}
        if config.time is not None:
            labels = [*table.labels(), *table.labels_after(config.horizon)]
            columns[config.time] = np.array(labels)[rows]
        columns |= {config.target: truth[rows], "prediction": predictions}
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame

    def stream(self) -> Stream:
        """Return a stream that has seen no row yet."""
        return Stream(self)


class Stream:
    """Predictions row by row.

    Under ``normalise="train"`` each row is one :meth:`Mamba2Forecaster.step`: its cost does not depend on
    the window. Until the window is full the predictions would rest on less than the model was trained on,
    so there are none; the first one equals that of the whole window, and from then on the state reaches
    back further than a window, to the first row.

    Under ``normalise="window"`` each new row changes what all earlier rows of the window look like to the
    model, so there is no state to go on from: the last rows are kept, and every prediction is a forward
    pass over them, equal to that of :meth:`Run.predict`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._columns = (run.config.target, *run.config.features)
        self._rows: deque[NDArray[np.float64]] = deque(maxlen=run.config.window)
        self._steps = isinstance(run.scaling, TrainScaling)
        self._states: Any = run.model.init_state(1) if self._steps else None
        self.seen = 0

    def push(self, row: Mapping[str, float] | Sequence[float], *, time: Any = None) -> float | None:
        """Take the next row; predict `horizon` rows on, or give None while the window is not full.

        Parameters
        ----------
        row : mapping or sequence of float
            Values by column name, or target and features in order.
        time : datetime-like, optional
            Needed where the run uses the calendar.

        Raises
        ------
        DataError
            If a column is missing, a value is not a finite number, or the time is needed; the row is then
            not taken.
        """
        values, calendar = self._checked(row), self._calendar(time)
        run = self._run
        self.seen += 1
        self._rows.append(np.concatenate([values, calendar]))
        full = self.seen >= run.config.window
        columns = len(self._columns)
        window = np.stack(self._rows)[None]  # (1, rows, columns + k)
        if self._steps:
            scaled = np.concatenate([run.scaling.inputs(values[None, None])[0, 0], calendar])
            x = scaled[None].astype(run.config.dtype)
            answer, self._states = run.model.step(x, self._states)
        elif full:
            scaled = run.scaling.inputs(window[:, :, :columns])
            x = np.concatenate([scaled, window[:, :, columns:]], axis=2).astype(run.config.dtype)
            answer = run.model(x)
        if not full:
            return None
        prediction = run.scaling.predictions(window[:, :, :columns], answer[:, 0].astype(np.float64))
        return float(prediction[0])

    def _checked(self, row: Mapping[str, float] | Sequence[float]) -> NDArray[np.float64]:
        number = self.seen + 1
        if isinstance(row, Mapping):
            if absent := [name for name in self._columns if name not in row]:
                raise DataError(f"row {number} of the stream has no column {absent[0]!r}")
            row = [row[name] for name in self._columns]
        if len(row) != len(self._columns):
            raise DataError(
                f"row {number} of the stream has {len(row)} values, expected {', '.join(self._columns)}"
            )
        for name, value in zip(self._columns, row, strict=True):
            if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise DataError(
                    f"row {number} of the stream, column {name!r}: {value!r} is not a finite number"
                )
        return np.array(row, dtype=np.float64)

    def _calendar(self, time: Any) -> NDArray[np.float64]:
        harmonics = self._run.config.calendar or 0
        if not harmonics:
            return np.empty(0)
        try:
            moment = pd.Timestamp(time)
        except (TypeError, ValueError) as error:
            raise DataError(f"row {self.seen + 1} of the stream: {time!r} is not a date") from error
        if time is None or moment is pd.NaT:
            raise DataError(f"row {self.seen + 1} of the stream needs its time: the run uses the calendar")
        waves: NDArray[np.float64] = waves_of_year(pd.Series([moment]), harmonics)[0]
        return waves
