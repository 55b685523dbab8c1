"""Baselines against numbers made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from assertions import assert_value
from mamba2_bridge.parity.tolerances import tolerance
from mamba2_bridge.training import read_table
from mamba2_bridge.training.baselines import (
    baseline_scores,
    best_autoregression,
    fit_autoregression,
    persistence,
    scores,
    seasonal_naive,
)
from mamba2_bridge.training.windows import split


def parts_of(values, **how):
    table = read_table(pd.DataFrame({"y": values}), target="y")
    return table.values, split(table, **{"window": 8, "horizon": 1, "validation": 0.2, "test": 0.2, **how})


def test_errors_are_root_mean_square_and_mean_absolute():
    one = scores(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 0.0]))
    assert (one.rmse, one.mae) == (2.0, 1.0)


def test_persistence_is_the_last_known_value():
    assert persistence(np.array([3.0, 1.0, 4.0, 1.0, 5.0]), np.array([1, 3])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("horizon", "period", "rows"), [(1, 4, [7, 8]), (4, 4, [10, 11]), (5, 4, [7, 8]), (9, 4, [7, 8])]
)
def test_seasonal_naive_looks_back_whole_periods_and_never_ahead(horizon, period, rows):
    values, ends = np.arange(40.0), np.array([10, 11])
    forecast = seasonal_naive(values, ends, horizon, period)
    assert forecast.tolist() == rows
    assert (forecast <= ends).all()
    assert ((ends + horizon - forecast) % period == 0).all()


def test_seasonal_naive_refuses_to_look_before_the_first_row():
    with pytest.raises(ValueError, match="before the first row"):
        seasonal_naive(np.arange(9.0), np.array([2]), 1, 4)


@pytest.mark.parametrize("form", ["levels", "changes"])
def test_an_autoregression_finds_the_weights_of_a_linear_recurrence(form):
    values = [1.0, 0.5]
    for _ in range(60):
        values.append(1.6 * values[-1] - 0.9 * values[-2] + (0.3 if form == "levels" else 0.0))
    data, parts = parts_of(values)
    known = np.empty((len(data), 0))
    fit = fit_autoregression(data, known, parts, order=2 if form == "levels" else 3, form=form, columns=1)
    # of changes: the recurrence plus its remainder, 0, of the row before, so that all weights sum to 0
    want = [-0.9, 1.6, 0.3] if form == "levels" else [0.9, -2.5, 0.0, 0.0]
    assert_value("weights", fit.weights, want)
    ends = parts.ends["test"]
    assert_value("predictions", fit.predict(data, known, ends), data[ends + 1, 0])


def test_an_autoregression_of_changes_goes_on_with_a_trend():
    data, parts = parts_of(np.arange(60.0) ** 2)
    known = np.empty((60, 0))
    fit = fit_autoregression(data, known, parts, order=4, form="changes", columns=1)
    ends = parts.ends["test"]
    assert_value("predictions", fit.predict(data, known, ends), data[ends + 1, 0])


def test_the_best_autoregression_is_chosen_on_validation_not_on_test():
    rng = np.random.default_rng(3)
    values = rng.normal(size=200).cumsum()
    data, parts = parts_of(values)
    known = np.empty((200, 0))
    before = best_autoregression(data, known, parts, columns=1)
    altered = data.copy()
    altered[parts.targets("test")] = 0.0
    after = best_autoregression(altered, known, parts, columns=1)
    assert (after.order, after.form) == (before.order, before.form)
    np.testing.assert_array_equal(after.weights, before.weights)
    ends, truth = parts.ends["validation"], data[parts.targets("validation"), 0]
    error = scores(before.predict(data, known, ends), truth).rmse
    for form in ("levels", "changes"):
        other = fit_autoregression(data, known, parts, order=8, form=form, columns=1)
        assert error <= scores(other.predict(data, known, ends), truth).rmse


def test_every_baseline_that_applies_is_scored_on_the_same_test_rows():
    rng = np.random.default_rng(4)
    season = np.tile(rng.normal(size=6), 20)
    data, parts = parts_of(season + rng.normal(0, 1e-3, 120))
    plain = baseline_scores(data, np.empty((120, 0)), parts, period=None)
    assert [name.split(" (")[0] for name in plain] == ["persistence", "autoregression"]
    calendar = np.arange(120.0)[:, None]
    full = baseline_scores(data, calendar, parts, period=6)
    assert [name.split(" (")[0] for name in full] == [
        "persistence",
        "seasonal naive",
        "autoregression",
        "autoregression, all inputs",
    ]
    assert full["seasonal naive (6)"].rmse < 0.01 < full["persistence"].rmse
    rows = parts.targets("test")
    by_hand = np.sqrt(np.mean((data[rows, 0] - data[rows - 1, 0]) ** 2))
    assert_value("persistence", full["persistence"].rmse, by_hand)


def test_inputs_besides_the_target_help_where_they_tell_the_future():
    rng = np.random.default_rng(5)
    target = rng.normal(size=150)
    lead = np.roll(target, -1)
    table = read_table(pd.DataFrame({"y": target, "x": lead}), target="y", features=["x"])
    parts = split(table, window=4, horizon=1, validation=0.2, test=0.2)
    result = baseline_scores(table.values, np.empty((150, 0)), parts, period=None)
    alone, full = [one.rmse for name, one in result.items() if name.startswith("auto")]
    assert full <= tolerance("value", "float64").bound() * np.abs(target).max()
    assert alone > 0.5
