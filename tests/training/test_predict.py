"""Predictions of a run: for a file, beyond its end, and row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from assertions import assert_close
from mamba2_bridge.exceptions import DataError
from mamba2_bridge.parity.measures import relative_error
from mamba2_bridge.parity.tolerances import tolerance
from mamba2_bridge.training import Run, train


@pytest.fixture(params=["window", "train"])
def run(request, csv, small, tmp_path):
    """A run with a feature, a calendar and two rows of horizon."""
    config = small(normalise=request.param, features=("heat",), calendar=1, horizon=2, steps=8)
    train(csv, config, tmp_path / "run")
    return Run.load(tmp_path / "run")


def test_a_file_is_predicted_to_beyond_its_end(run, csv, frame, tmp_path):
    predictions = run.predict(csv)
    assert list(predictions.columns) == ["row", "day", "load", "prediction"]
    assert predictions["row"].tolist() == list(range(18, 163))
    assert predictions["day"].iloc[0] == frame["day"][17]
    assert predictions["day"].tolist()[-2:] == ["2020-06-09", "2020-06-10"]
    assert predictions["load"].iloc[0] == frame["load"][17]
    assert predictions["load"].isna().sum() == 2
    assert predictions["prediction"].notna().all()
    tested = pd.read_csv(tmp_path / "run" / "test.csv").set_index("day")["prediction"]
    got = predictions.set_index("day")["prediction"][tested.index]
    assert_close("test part", got, tested, "forecast", "float64")


def test_a_prediction_knows_nothing_of_later_rows(run, frame):
    whole = run.predict(frame)["prediction"]
    part = run.predict(frame[:100])["prediction"]
    assert_close("first 100 rows", part, whole[: 100 - 15], "forecast", "float64")


def test_a_shorter_series_than_a_window_is_refused(run, frame):
    with pytest.raises(DataError, match="15 rows: no whole window of 16"):
        run.predict(frame[:15])


def test_missing_cells_are_refused_or_filled_as_asked(run, frame):
    frame.loc[60, "load"] = np.nan
    with pytest.raises(DataError, match="row 61"):
        run.predict(frame)
    predictions = run.predict(frame, missing="interpolate").set_index("row")
    # row 61 is filled with the help of row 62: no window ends there
    assert 63 not in predictions.index
    assert np.isnan(predictions["load"][61])
    assert np.isfinite(predictions["prediction"]).all()


def test_a_stream_gives_the_predictions_of_whole_windows(run, frame):
    stream = run.stream()
    told = [
        stream.push({"load": row.load, "heat": row.heat}, time=row.day) for row in frame[:40].itertuples()
    ]
    assert told[:15] == [None] * 15
    whole = run.predict(frame[:40])["prediction"].to_numpy()
    # scaled by the training part, the state goes on: only the first whole window starts where the stream did
    same = slice(0, 1) if run.config.normalise == "train" else slice(None)
    got = np.array(told[15:], dtype=float)
    assert_close("stream", got[same], whole[same], "forecast", "float64")
    if run.config.normalise == "train":
        assert relative_error(got[1:], whole[1:]) > tolerance("forecast", "float64").bound()


@pytest.mark.parametrize(
    ("row", "time", "words"),
    [
        ({"load": 1.0}, "2020-01-01", "row 1 of the stream has no column 'heat'"),
        ([1.0], "2020-01-01", "row 1 of the stream has 1 values"),
        ([1.0, float("nan")], "2020-01-01", "column 'heat': nan is not a finite number"),
        ([1.0, "warm"], "2020-01-01", "column 'heat': 'warm' is not a finite number"),
        ([1.0, 1.0], None, "needs its time"),
        ([1.0, 1.0], "soon", "'soon' is not a date"),
    ],
)
def test_a_faulty_row_of_a_stream_is_refused_and_not_taken(run, row, time, words):
    stream = run.stream()
    with pytest.raises(DataError, match=words):
        stream.push(row, time=time)
    assert stream.seen == 0


def test_a_run_without_a_checkpoint_says_how_to_get_one(csv, small, tmp_path):
    def kill(report):
        raise RuntimeError(report.step)

    with pytest.raises(RuntimeError):
        train(csv, small(), tmp_path / "run", on_step=kill)
    with pytest.raises(FileNotFoundError, match=r"no best checkpoint yet.*--resume"):
        Run.load(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="holds no run"):
        Run.load(tmp_path / "nowhere")
