"""Normalisation: numbers by hand, and that predictions undo what targets did."""

from __future__ import annotations

import json

import numpy as np
import pytest

from assertions import assert_value
from mamba2_bridge.exceptions import DataError
from mamba2_bridge.training.scaling import TrainScaling, WindowScaling, fit_scaling, scaling_from_dict


def test_by_the_training_part_a_value_is_counted_in_standard_deviations_from_the_mean():
    scaling = TrainScaling(mean=(10.0, 0.0), std=(2.0, 5.0))
    windows = np.array([[[12.0, 5.0], [8.0, -5.0]]])
    assert scaling.inputs(windows).tolist() == [[[1, 1], [-1, -1]]]
    assert scaling.targets(windows, np.array([14.0])).tolist() == [2]


def test_per_window_a_value_is_counted_from_the_last_one():
    scaling = WindowScaling(smallest_spread=(0.1,), change=0.5)
    windows = np.array([[[1.0], [5.0], [3.0], [3.0]]])
    spread = np.sqrt(2.0)
    assert_value("inputs", scaling.inputs(windows)[0, :, 0], np.array([-2, 2, 0, 0]) / spread)
    assert_value("targets", scaling.targets(windows, np.array([4.0])), [1 / (spread * 0.5)])


def test_per_window_a_flat_window_is_not_blown_up():
    scaling = WindowScaling(smallest_spread=(0.1,), change=1.0)
    assert_value("targets", scaling.targets(np.full((1, 4, 1), 7.0), np.array([7.05])), [0.5])


def test_per_window_level_and_unit_do_not_matter():
    rng = np.random.default_rng(1)
    windows, targets = rng.normal(size=(6, 9, 2)), rng.normal(size=6)
    ours = fit_scaling("window", windows[0], windows, targets, ("y", "x"))
    moved = fit_scaling("window", windows[0] * 4 + 100, windows * 4 + 100, targets * 4 + 100, ("y", "x"))
    assert_value("inputs", moved.inputs(windows * 4 + 100), ours.inputs(windows))
    assert_value(
        "targets", moved.targets(windows * 4 + 100, targets * 4 + 100), ours.targets(windows, targets)
    )


@pytest.mark.parametrize("kind", ["train", "window"])
def test_predictions_undo_targets_also_after_a_file(kind):
    rng = np.random.default_rng(2)
    windows, targets = rng.normal(size=(6, 9, 2)), rng.normal(size=6)
    fitted = fit_scaling(kind, windows[0], windows, targets, ("y", "x"))
    scaling = scaling_from_dict(json.loads(json.dumps(fitted.to_dict())), columns=2)
    assert scaling == fitted
    assert_value("predictions", scaling.predictions(windows, scaling.targets(windows, targets)), targets)


@pytest.mark.parametrize("kind", ["train", "window"])
def test_a_column_that_is_constant_in_training_is_refused_by_name(kind):
    rows = np.stack([np.arange(7.0), np.full(7, 0.1)], axis=1)
    with pytest.raises(DataError, match=r"'x' is constant \(0\.1\) in rows 1 to 7"):
        fit_scaling(kind, rows, rows[None], np.zeros(1), ("y", "x"))
