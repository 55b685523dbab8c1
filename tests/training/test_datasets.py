"""The shipped series are the published ones."""

from __future__ import annotations

import pytest

from mamba2_bridge import datasets
from mamba2_bridge.training import read_table


def test_co2_is_weekly_with_its_gaps():
    frame = datasets.co2()
    assert list(frame.columns) == ["date", "co2"]
    assert len(frame) == 2284
    assert frame["co2"].isna().sum() == 59
    assert (frame["date"].diff().iloc[1:].dt.days == 7).all()
    assert (frame["date"].iloc[0].isoformat()[:10], frame["co2"].iloc[0]) == ("1958-03-29", 316.1)
    assert (frame["date"].iloc[-1].isoformat()[:10], frame["co2"].iloc[-1]) == ("2001-12-29", 371.5)


def test_sunspots_are_yearly_without_gaps():
    frame = datasets.sunspots()
    assert list(frame.columns) == ["year", "sunspots"]
    assert frame["year"].tolist() == list(range(1700, 2009))
    assert frame["sunspots"].notna().all()
    assert frame["sunspots"].iloc[[0, -1]].tolist() == [5.0, 2.9]


@pytest.mark.parametrize(
    ("name", "target", "time"), [("co2", "co2", "date"), ("sunspots", "sunspots", "year")]
)
def test_file_and_function_are_the_same_series(name, target, time):
    how = {"target": target, "time": time, "missing": "interpolate"}
    assert (
        read_table(datasets.path(name), **how).digest()
        == read_table(getattr(datasets, name)(), **how).digest()
    )


def test_an_unknown_series_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match="no series 'weather'; there are co2, sunspots"):
        datasets.path("weather")
