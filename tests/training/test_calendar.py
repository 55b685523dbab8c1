"""The time of year as inputs."""

from __future__ import annotations

import pandas as pd
import pytest

from assertions import assert_value
from mamba2_bridge.exceptions import ConfigError, DataError
from mamba2_bridge.training import read_table
from mamba2_bridge.training.calendar import automatic_harmonics, calendar_inputs, part_of_year


def table_of(times, **how):
    return read_table(pd.DataFrame({"t": times, "y": range(len(times))}), target="y", **{"time": "t", **how})


def test_a_year_runs_from_0_towards_1_leap_or_not():
    dates = pd.Series(
        pd.to_datetime(
            ["2019-01-01", "2019-07-02 12:00", "2020-07-02", "2020-12-31", "2021-01-01"], format="ISO8601"
        )
    )
    assert_value("part of the year", part_of_year(dates), [0, 0.5, 0.5, 365 / 366, 0])


def test_waves_are_sine_and_cosine_of_each_harmonic():
    table = table_of(["2019-01-01", "2019-07-02 12:00"])
    assert_value("waves", calendar_inputs(table, 2), [[0, 1, 0, 1], [0, -1, 0, 1]])
    assert calendar_inputs(table, 0).shape == (2, 0)


@pytest.mark.parametrize(
    ("times", "harmonics"),
    [
        (pd.date_range("2000-01-01", periods=200, freq="W"), 4),
        (pd.date_range("2000-01-01", periods=50, freq="MS"), 4),
        (pd.date_range("2000-01-01", periods=50, freq="W"), 0),
        (pd.date_range("1900-01-01", periods=50, freq="YS"), 0),
        (range(1700, 1900), 0),
    ],
)
def test_it_is_automatic_for_dates_over_some_years_in_steps_of_a_month_or_less(times, harmonics):
    assert automatic_harmonics(table_of(times)) == harmonics


def test_it_needs_dates():
    with pytest.raises(ConfigError, match="calendar=2 needs a time column"):
        calendar_inputs(table_of([1, 2], time=None), 2)
    with pytest.raises(DataError, match="calendar=2 needs dates"):
        calendar_inputs(table_of([1, 2]), 2)
