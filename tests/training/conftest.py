"""A small series with trend, season and noise, and the smallest training of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from mamba2_bridge.training import TrainConfig

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 160


@pytest.fixture
def frame() -> pd.DataFrame:
    """Daily dates, a target, a second column that leads it."""
    rows = np.arange(ROWS)
    rng = np.random.default_rng(7)
    wave = np.sin(2 * np.pi * rows / 12)
    return pd.DataFrame(
        {
            "day": pd.date_range("2020-01-01", periods=ROWS, freq="D").strftime("%Y-%m-%d"),
            "load": np.round(50 + 0.1 * rows + 3 * wave + rng.normal(0, 0.2, ROWS), 3),
            "heat": np.round(np.roll(wave, -1) + rng.normal(0, 0.05, ROWS), 3),
        }
    )


@pytest.fixture
def csv(frame: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def small() -> Any:
    """Make a TrainConfig that trains in about a second; arguments change it."""

    def make(**changes: Any) -> TrainConfig:
        settings = {
            "target": "load",
            "time": "day",
            "window": 16,
            "d_model": 8,
            "n_layer": 1,
            "d_state": 4,
            "headdim": 4,
            "chunk_size": 8,
            "steps": 12,
            "batch_size": 8,
            "warmup": 2,
            "evaluate_every": 4,
            "period": 12,
        }
        return TrainConfig(**{**settings, **changes})

    return make
