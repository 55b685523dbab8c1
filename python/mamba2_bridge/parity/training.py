"""Training on real data: to compare, and then the native model by itself."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge import datasets, training
from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.mamba2_cases import draw_forecaster, exact, generator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

_WEEKS = 52  # of history that the forecaster sees
_CONFIG: dict[str, Any] = {
    "d_model": 16, "d_state": 8, "d_conv": 4, "expand": 2, "headdim": 8, "ngroups": 1, "chunk_size": 16,
    "n_layer": 2, "d_input": 1, "d_output": 1,
}  # fmt: skip


def co2_case(seed: int = 0, steps: int = 20, batch: int = 16) -> Case:
    """Predict the next week's CO2 at Mauna Loa from the year before it.

    Missing weeks are interpolated. Each window is shifted by its last value and scaled by its own spread, so
    that the trend of decades is no obstacle. Windows are drawn from the first 70 % of the weeks.
    """
    rng = generator(seed, "co2")
    table = training.read_table(datasets.co2(), target="co2", time="date", missing="interpolate")
    series = table.values[:, 0]
    batches = [
        _windows(series, rng.integers(0, int(0.7 * len(series)) - _WEEKS, batch)) for _ in range(steps)
    ]
    return Case("CO2 forecaster", draw_forecaster(rng, _CONFIG), batches, _CONFIG, AdamW(lr=1e-3))


def train_forecaster(
    out: Path, seed: int, steps: int, on_step: Callable[[training.StepReport], None] | None = None
) -> dict[str, Any]:
    """Train the native model alone, in fp32, to a useful forecaster of CO2, in a folder below ``out``.

    A run that an earlier call left there is replaced.

    Returns
    -------
    dict
        ``test`` and ``baselines``: errors on the last weeks, which training did not see; ``beats_baselines``;
        ``folder``.
    """
    folder = out / "co2-forecaster"
    if (folder / "config.json").exists():
        shutil.rmtree(folder)
    config = training.TrainConfig(
        "co2", time="date", missing="interpolate", period=_WEEKS, seed=seed, steps=steps
    )
    result = training.train(datasets.path("co2"), config, folder, on_step=on_step)
    return {
        "test": result.test.to_dict(),
        "baselines": {name: scores.to_dict() for name, scores in result.baselines.items()},
        "beats_baselines": result.beats_baselines,
        "folder": str(folder),
    }


def _windows(series: Array, starts: Array) -> Batch:
    """Cut windows (batch, weeks, 1) that start at ``starts`` (batch,), and the week after each (batch, 1)."""
    rows = series[starts[:, None] + np.arange(_WEEKS + 1)]  # (batch, weeks + 1)
    history = rows[:, :-1]
    scaled = (rows - history[:, -1:]) / history.std(axis=1, keepdims=True)
    return Batch({"x": exact(scaled[:, :-1, None])}, target=exact(scaled[:, -1:]))
