"""Reading a series: what is accepted, and that everything else is refused by row and column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mamba2_bridge.exceptions import DataError
from mamba2_bridge.training import read_table

if TYPE_CHECKING:
    from pathlib import Path


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "series.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_table_holds_target_then_features_in_the_order_asked_for(tmp_path):
    path = write(tmp_path, "day,a,b,c\n2020-01-01,1,2,3\n2020-01-02,4,5,6\n")
    table = read_table(path, target="c", features=["a"], time="day")
    assert table.columns == ("c", "a")
    assert table.values.tolist() == [[3, 1], [6, 4]]
    assert table.labels() == ["2020-01-01", "2020-01-02"]
    assert not table.filled.any()
    assert table.notes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["series.csv is empty"]),
        ("\n\n", ["series.csv is empty"]),
        ("t,y\n", ["series.csv has a header but no rows"]),
        ("t,z\n1,2\n", ["no column 'y'", "the target", "t, z"]),
        ("t,y,y\n1,2,3\n", ["2 columns called 'y'"]),
        ("t,y\n1,2\n2,\n3,4\n", ["'y' misses 1 of 3 values", "row 2 (2)", "--missing interpolate"]),
        ("t,y\n1,2\n2,NA\n3,nan\n", ["'y' misses 2 of 3 values", "row 2"]),
        ("t,y\n1,2\n2,oops\n3,4\n", ["row 2, column 'y'", "'oops' is not a number"]),
        ("t,y\n1,2\n2,oops\n3,huh\n", ["row 2, column 'y'", "and 1 more such row"]),
        ('t,y\n1,"2,5"\n2,3\n', ["row 1, column 'y'", "'2,5' is not a number"]),
        ("t,y\n1,2\n2,inf\n", ["row 2, column 'y'", "not finite"]),
        ("t,y\n1,2\n3,2\n2,2\n", ["row 3, column 't'", "2 is earlier than row 2 (3)"]),
        ("t,y\n1,2\n2,2\n2,2\n", ["row 3, column 't'", "2 is the same time as row 2"]),
        ("t,y\n1,2\n,2\n", ["row 2, column 't'", "the time is missing"]),
        ("t,y\n2020-01-01,2\nsoon,2\n", ["row 2, column 't'", "'soon' is neither a date nor a number"]),
        ("t,y\n1,2\nsoon,2\n", ["row 2, column 't'", "'soon' is neither a date nor a number"]),
        ("t,y\n1,2\n2,3,4\n", ["series.csv is not a table", "line 3"]),
        (b"t,y\n1,\xff\n", ["series.csv is not UTF-8 text"]),
    ],
)
def test_a_faulty_file_is_refused_by_name(tmp_path, text, words):
    with pytest.raises(DataError) as error:
        read_table(write(tmp_path, text), target="y", time="t")
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"features": ["heat"]}, ["no column 'heat'", "the feature"]),
        ({"time": "when"}, ["no column 'when'", "the time"]),
        ({"features": ["y"]}, ["'y' is asked for more than once"]),
        ({"time": "y"}, ["'y' is asked for more than once"]),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(tmp_path, asked, words):
    with pytest.raises(DataError) as error:
        read_table(write(tmp_path, "t,y\n1,2\n2,3\n"), target="y", **asked)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "values",
    [
        [1 + 2j, 2 + 0j],
        [True, False],
        pd.array([True, None], dtype="boolean"),
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
        pd.to_datetime(["2020-01-01", "2020-01-02"], utc=True),
        pd.to_timedelta([1, 2], unit="D"),
        pd.period_range("2020-01", periods=2, freq="M"),
        pd.Categorical([True, False]),
        pd.Series([1.0, True], dtype=object),
        pd.Series([1.0, 1j], dtype=object),
        pd.Series([1.0, pd.Timestamp("2020-01-01")], dtype=object),
        pd.Series([1.0, pd.Timedelta(days=1)], dtype=object),
        pd.Series([1.0, np.timedelta64(1, "D")], dtype=object),
    ],
    ids=lambda values: str(getattr(values, "dtype", type(values[0]))),
)
def test_a_column_of_a_frame_that_holds_no_real_numbers_is_refused_by_name(values):
    frame = pd.DataFrame({"y": values})
    for missing in ("error", "interpolate"):
        with pytest.raises(DataError, match=r"column 'y'.* not (a )?real number"):
            read_table(frame, target="y", missing=missing)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        np.array([1, 2], dtype=np.uint8),
        np.array([1, 2], dtype=np.float32),
        pd.array([1, 2], dtype="Int64"),
        pd.Series([1, 2.0], dtype=object),
        ["1", "2"],
        pd.Categorical([1, 2]),
    ],
    ids=lambda values: str(getattr(values, "dtype", type(values[0]))),
)
def test_a_column_of_a_frame_may_hold_numbers_of_any_real_kind(values):
    assert read_table(pd.DataFrame({"y": values}), target="y").values.tolist() == [[1.0], [2.0]]


def test_a_file_that_is_not_there_keeps_its_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv", target="y")
    with pytest.raises(IsADirectoryError):
        read_table(tmp_path, target="y")


def test_missing_cells_are_interpolated_along_the_time_and_reported(tmp_path):
    # 2 lies a third of the way from 1 to 4
    table = read_table(
        write(tmp_path, "t,y\n1,10\n2,\n4,40\n5,50\n"), target="y", time="t", missing="interpolate"
    )
    assert table.values[:, 0].tolist() == [10, 20, 40, 50]
    assert table.filled[:, 0].tolist() == [False, True, False, False]
    assert "1 in 'y'" in table.notes[-1]


def test_without_a_time_missing_cells_are_interpolated_along_the_rows(tmp_path):
    table = read_table(write(tmp_path, "y,z\n10,1\n,1\n40,1\n"), target="y", missing="interpolate")
    assert table.values[:, 0].tolist() == [10, 25, 40]


@pytest.mark.parametrize(("text", "row"), [("y,z\n,1\n2,1\n", 1), ("y,z\n2,1\n,1\n", 2)])
def test_missing_cells_at_the_ends_are_not_made_up(tmp_path, text, row):
    with pytest.raises(DataError, match=rf"row {row}, column 'y'"):
        read_table(write(tmp_path, text), target="y", missing="interpolate")


def test_a_column_without_any_value_is_refused(tmp_path):
    with pytest.raises(DataError, match="'y' has no value in any row"):
        read_table(write(tmp_path, "y,z\n,1\n,1\n"), target="y", missing="interpolate")


def test_absent_rows_are_noted(tmp_path):
    table = read_table(write(tmp_path, "t,y\n1,1\n2,2\n3,3\n6,4\n7,5\n"), target="y", time="t")
    assert "1 of 4 time steps are longer" in table.notes[0]
    assert "row 4 (6)" in table.notes[0]


@pytest.mark.parametrize(
    "times",
    [["2020-01-31", "2020-02-29"], ["31/01/2020", "29/02/2020"], ["2020-01-31T06:00", "2020-01-31T07:30"]],
)
def test_dates_are_read_as_they_are_commonly_written(tmp_path, times):
    table = read_table(write(tmp_path, f"t,y\n{times[0]},1\n{times[1]},2\n"), target="y", time="t")
    assert table.has_dates
    assert table.time is not None
    assert table.time.iloc[0].day == 31


@pytest.mark.parametrize(
    "times",
    [
        ["01/01/2019", "01/02/2019", "01/03/2019"],
        ["1.1.2019", "1.2.2019"],
        ["01-01-2019 06:00", "01-02-2019 06:00"],
        ["01/01/19", "01/02/19"],
    ],
)
def test_dates_that_may_have_the_day_or_the_month_first_are_refused(tmp_path, times):
    path = write(tmp_path, "t,y\n" + "".join(f"{time},1\n" for time in times))
    with pytest.raises(DataError, match=rf"row 1, column 't': '{times[0]}' may have .*YYYY-MM-DD"):
        read_table(path, target="y", time="t")


@pytest.mark.parametrize(
    "times", [["12/01/2020", "13/01/2020"], ["01/12/2020", "01/13/2020"], ["12.01.2020", "13.01.2020"]]
)
def test_one_row_tells_whether_the_day_or_the_month_is_first(tmp_path, times):
    table = read_table(write(tmp_path, f"t,y\n{times[0]},1\n{times[1]},2\n"), target="y", time="t")
    assert table.labels() == ["2020-01-12", "2020-01-13"]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["2020-01-01T00:00", "2020-01-01T02:00Z"], "has a time zone, the rows before it have none"),
        (["2020-01-01T00:00+01:00", "2020-01-01T02:00"], "has no time zone, the rows before it have one"),
    ],
)
def test_times_with_and_without_a_zone_are_refused(tmp_path, times, words):
    path = write(tmp_path, f"t,y\n{times[0]},1\n{times[1]},2\n")
    with pytest.raises(DataError, match=f"row 2, column 't': .*{words}"):
        read_table(path, target="y", time="t")


def test_times_of_different_zones_are_read(tmp_path):
    path = write(tmp_path, "t,y\n2020-01-01T00:00+01:00,1\n2020-01-01T02:00+02:00,2\n")
    assert read_table(path, target="y", time="t").has_dates


def test_labels_go_on_where_steps_are_equal(tmp_path):
    even = read_table(write(tmp_path, "t,y\n2020-01-30,1\n2020-01-31,2\n"), target="y", time="t")
    assert even.labels_after(2) == ["2020-02-01", "2020-02-02"]
    uneven = read_table(write(tmp_path, "t,y\n1,1\n2,2\n4,3\n"), target="y", time="t")
    assert uneven.labels_after(1) == [""]
    assert read_table(write(tmp_path, "y\n1\n2\n"), target="y").labels_after(1) == ["3"]


def test_a_data_frame_and_its_file_are_the_same_series(csv, frame):
    from_file = read_table(csv, target="load", features=["heat"], time="day")
    from_frame = read_table(
        frame.assign(day=pd.to_datetime(frame["day"])), target="load", features=["heat"], time="day"
    )
    assert from_file.digest() == from_frame.digest()
    changed = frame.copy()
    changed.loc[3, "heat"] += 1e-3
    assert read_table(changed, target="load", features=["heat"], time="day").digest() != from_file.digest()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_numbers_are_read_exactly(tmp_path_factory, numbers):
    path = write(tmp_path_factory.mktemp("exact"), "y\n" + "\n".join(map(repr, numbers)) + "\n")
    read = read_table(path, target="y").values[:, 0]
    assert [math.copysign(1, x) for x in read] == [math.copysign(1, x) for x in numbers]
    np.testing.assert_array_equal(read, numbers)
