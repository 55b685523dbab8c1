"""Training to compare: ten steps on noise, twenty on real data, and then the native model by itself."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge import datasets, training
from mamba2_bridge.parity.cases import draw_parameters, generator
from mamba2_bridge.parity.runners import AdamW, Batch, Forecaster, Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

_WEEKS = 52  # of history that the forecaster sees
_SIZES: dict[str, Any] = {
    "d_model": 16, "d_state": 8, "d_conv": 4, "expand": 2, "headdim": 8, "ngroups": 1, "chunk_size": 16,
}  # fmt: skip


def noise_problem(seed: int = 0, steps: int = 10) -> Problem:
    """Fit one mixer to noise, with a weight decay large enough to show what it falls on."""
    rng = generator(seed, "noise")
    config = {**_SIZES, "ngroups": 2, "bias": True, "D_has_hdim": True}
    shape = (2, 24, config["d_model"])
    batches = [Batch(rng.standard_normal(shape), rng.standard_normal(shape)) for _ in range(steps)]
    settings = AdamW(lr=1e-3, weight_decay=0.1)
    return Problem("AdamW on noise", config, None, draw_parameters(rng, config), batches, settings)


def co2_problem(seed: int = 0, steps: int = 20, batch: int = 16) -> Problem:
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
    sizes = Forecaster(d_input=1, d_output=1, n_layer=2)
    params = draw_forecaster(rng, _SIZES, sizes)
    return Problem("CO2 forecaster", _SIZES, sizes, params, batches, AdamW(lr=1e-3))


def draw_forecaster(rng: np.random.Generator, config: dict[str, Any], sizes: Forecaster) -> dict[str, Array]:
    """Draw every parameter of a forecaster, those of its mixers as `draw_parameters` does."""
    d_model = config["d_model"]
    params = {
        "encoder.weight": rng.standard_normal((d_model, sizes.d_input)) / np.sqrt(sizes.d_input),
        "encoder.bias": 0.1 * rng.standard_normal(d_model),
        "norm_f.weight": 1.0 + 0.1 * rng.standard_normal(d_model),
        "head.weight": rng.standard_normal((sizes.d_output, d_model)) / np.sqrt(d_model),
        "head.bias": 0.1 * rng.standard_normal(sizes.d_output),
    }
    for i in range(sizes.n_layer):
        params[f"layers.{i}.norm.weight"] = 1.0 + 0.1 * rng.standard_normal(d_model)
        mixer = draw_parameters(rng, config)
        params |= {f"layers.{i}.mixer.{name}": value for name, value in mixer.items()}
    return params


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
    return Batch(scaled[:, :-1, None], scaled[:, -1:])
