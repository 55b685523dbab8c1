"""The split: in the order of time, nothing of a later part in what is fitted, no made-up targets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from mamba2_bridge.exceptions import DataError
from mamba2_bridge.training import read_table
from mamba2_bridge.training.scaling import fit_scaling
from mamba2_bridge.training.windows import PARTS, split, windows_of


def table_of(values, missing="error"):
    return read_table(pd.DataFrame({"y": values}), target="y", missing=missing)


def test_parts_follow_each_other_by_the_row_of_the_target():
    parts = split(table_of(np.arange(20.0)), window=4, horizon=2, validation=0.2, test=0.3)
    assert parts.train_rows == 10
    assert parts.targets("train").tolist() == [5, 6, 7, 8, 9]
    assert parts.targets("validation").tolist() == [10, 11, 12, 13]
    assert parts.targets("test").tolist() == [14, 15, 16, 17, 18, 19]


def test_a_window_ends_horizon_rows_before_its_target():
    values = np.arange(20.0)
    parts = split(table_of(values), window=4, horizon=3, validation=0.2, test=0.2)
    windows = windows_of(values[:, None], parts.ends["test"], 4)
    targets = values[parts.targets("test")]
    assert windows[0, :, 0].tolist() == [targets[0] - 6, targets[0] - 5, targets[0] - 4, targets[0] - 3]


def test_an_interpolated_cell_is_no_target_and_ends_no_window():
    values = np.arange(30.0)
    values[[8, 9]] = np.nan
    parts = split(table_of(values, "interpolate"), window=3, horizon=1, validation=0.2, test=0.2)
    # row 8 and 9 are filled with the help of row 10, so a window that ends there knows row 10
    assert {8, 9}.isdisjoint(parts.targets("train").tolist())
    assert {8, 9}.isdisjoint(parts.ends["train"].tolist())
    assert 10 in parts.ends["train"]


@pytest.mark.parametrize("kind", ["train", "window"])
def test_what_is_fitted_does_not_depend_on_later_rows(kind):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 2)).cumsum(0)
    altered = values.copy()

    def fitted(values):
        table = read_table(pd.DataFrame(values, columns=["y", "x"]), target="y", features=["x"])
        parts = split(table, window=5, horizon=2, validation=0.2, test=0.2)
        ends = parts.ends["train"]
        windows = windows_of(table.values, ends, 5)
        rows = table.values[: parts.train_rows]
        return parts, fit_scaling(kind, rows, windows, table.values[ends + 2, 0], table.columns)

    parts, before = fitted(values)
    altered[parts.train_rows :] = 1e6
    assert fitted(altered)[1] == before
    altered = values.copy()
    altered[parts.train_rows - 1] += 1.0
    assert fitted(altered)[1] != before


def test_no_training_window_reaches_a_later_row():
    parts = split(table_of(np.arange(50.0)), window=5, horizon=3, validation=0.2, test=0.2)
    assert parts.targets("train").max() < parts.train_rows
    for earlier, later in pairwise(PARTS):
        assert parts.targets(earlier).max() < parts.targets(later).min()


@pytest.mark.parametrize(("rows", "validation", "part"), [(10, 0.1, "train"), (30, 0.01, "validation")])
def test_too_few_rows_are_refused_with_their_number(rows, validation, part):
    with pytest.raises(DataError, match=rf"too few rows \({rows}\).*window of 8.*{part} part"):
        split(table_of(np.arange(float(rows))), window=8, horizon=1, validation=validation, test=0.3)
