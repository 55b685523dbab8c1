"""A series in a file, and the command in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mamba2_bridge.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 120


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rows = np.arange(ROWS)
    noise = np.random.default_rng(0).normal(0, 0.1, ROWS)
    frame = pd.DataFrame(
        {"day": rows, "load": np.round(10 + np.sin(rows) + noise, 3), "heat": np.round(noise, 3)}
    )
    path = tmp_path / "load.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def command() -> Any:
    """Run ``mamba2-bridge`` with arguments; give exit code, output and error output."""

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="mamba2-bridge")

    return run
