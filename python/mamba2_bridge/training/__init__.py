"""Training a forecaster on a time series, and using it: last-timestep regression from a CSV file to a report.

>>> from mamba2_bridge import datasets, training
>>> config = training.TrainConfig("co2", time="date", missing="interpolate", period=52)
>>> result = training.train(datasets.path("co2"), config, "runs/co2")  # doctest: +SKIP
>>> training.Run.load("runs/co2").predict(datasets.path("co2"))  # doctest: +SKIP

Needs the extra ``mamba2-bridge[train]``.
"""

import mamba2_bridge.training._needs  # noqa: F401 (first, so that it gets to say what is missing)
from mamba2_bridge.training.baselines import Scores
from mamba2_bridge.training.config import TrainConfig
from mamba2_bridge.training.experiment import TrainResult, resume, train
from mamba2_bridge.training.loop import StepReport
from mamba2_bridge.training.predict import Run, Stream
from mamba2_bridge.training.run import RunFolder
from mamba2_bridge.training.table import Table, read_table

__all__ = [
    "Run",
    "RunFolder",
    "Scores",
    "StepReport",
    "Stream",
    "Table",
    "TrainConfig",
    "TrainResult",
    "read_table",
    "resume",
    "train",
]
