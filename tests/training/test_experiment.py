"""A whole run: what it leaves behind, that it goes on bit-exactly, and that it refuses what it must."""

from __future__ import annotations

import errno
import json
import threading

import numpy as np
import pandas as pd
import pytest

from assertions import assert_close, assert_value
from mamba2_bridge.exceptions import CheckpointError, ConfigError, DataError, NonFiniteError
from mamba2_bridge.training import Run, resume, train


def stop_after(step):
    def on_step(report):
        if report.step == step:
            raise KeyboardInterrupt

    return on_step


def content(folder):
    """Return all files of a run but its picture, and the zip file whose members carry a time."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".png", ".npz")
    }


def weights(folder):
    return {name: value.tobytes() for name, value in Run.load(folder).model.state_dict().items()}


def test_a_run_leaves_config_checkpoints_metrics_table_and_picture(csv, small, tmp_path):
    reports = []
    result = train(csv, small(), tmp_path / "run", on_step=reports.append)
    folder = tmp_path / "run"
    assert [one.step for one in reports] == list(range(1, 13))
    assert reports[-1].validation_loss is not None
    assert result.steps == 12
    assert result.best_step in (4, 8, 12)
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert len(metrics["losses"]) == 12
    assert [one["step"] for one in metrics["evaluations"]] == [4, 8, 12]
    names = set(result.forecaster().state_dict())
    for one in metrics["evaluations"]:
        assert set(one["gradient_norms"]) == set(one["update_ratios"]) == names
        norms = np.array(list(one["gradient_norms"].values()))
        assert_value("gradient_norm", one["gradient_norm"], np.sqrt((norms**2).sum()))
        assert all(ratio > 0 for ratio in one["update_ratios"].values())
    assert_value("train_loss", metrics["evaluations"][0]["train_loss"], np.mean(metrics["losses"][:4]))
    assert metrics["test"]["model"]["rmse"] == result.test.rmse
    assert set(metrics["test"]["baselines"]) == set(result.baselines)
    table = pd.read_csv(folder / "test.csv")
    error = table["prediction"] - table["load"]
    assert_value("rmse", np.sqrt((error**2).mean()), result.test.rmse)
    assert not [path.name for path in folder.rglob(".*")]


@pytest.mark.parametrize("normalise", ["window", "train"])
def test_training_learns_and_validation_is_the_training_loss_on_validation_examples(
    csv, frame, small, tmp_path, normalise
):
    config = small(normalise=normalise, steps=60, lr=1e-2, features=("heat",), average=0.0, evaluate_every=60)
    result = train(csv, config, tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert np.mean(metrics["losses"][-5:]) < 0.5 * np.mean(metrics["losses"][:5])
    run = Run.load(tmp_path / "run")
    predictions = run.predict(csv).set_index("row")
    # the validation part by hand: rows 113 to 136 of 160
    part = predictions.loc[113:136]
    if normalise == "train":
        unit = frame["load"][:112].std(ddof=0)
    else:
        spread = np.array([frame["load"][row - 17 : row - 1].std(ddof=0) for row in part.index])
        unit = spread * run.scaling.change
    error = (part["prediction"] - part["load"]) / unit
    assert_close("validation loss", result.validation_loss, (error**2).mean(), "forecast", "float64")


@pytest.mark.parametrize("stop", [2, 4, 7])
@pytest.mark.parametrize("average", [0.9, 0.0])
def test_an_interrupted_run_goes_on_bit_exactly(csv, small, tmp_path, stop, average):
    config = small(average=average)
    train(csv, config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt, match=rf"after step {stop} of 12.*--resume"):
        train(csv, config, tmp_path / "halves", on_step=stop_after(stop))
    result = resume(tmp_path / "halves")
    assert result.steps == 12
    assert content(tmp_path / "whole") == content(tmp_path / "halves")
    whole, halves = (np.load(tmp_path / one / "checkpoints/last/state.npz") for one in ("whole", "halves"))
    assert sorted(whole.files) == sorted(halves.files)
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], halves[name], err_msg=name)


def test_a_run_killed_before_its_first_checkpoint_starts_again(csv, small, tmp_path):
    result = train(csv, small(), tmp_path / "whole")
    with pytest.raises(RuntimeError, match="killed"):
        train(csv, small(), tmp_path / "killed", on_step=_kill)
    assert resume(tmp_path / "killed").test == result.test


def _kill(report):
    del report
    raise RuntimeError("killed")


def test_a_full_disk_leaves_the_checkpoint_before_and_training_goes_on_from_it(
    csv, small, tmp_path, monkeypatch
):
    whole = train(csv, small(), tmp_path / "whole")
    saved, write = [], np.savez

    def full_at_the_second(file, **arrays):
        saved.append(file)
        if len(saved) == 2:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full_at_the_second)
        with pytest.raises(OSError, match="No space left"):
            train(csv, small(), tmp_path / "full")
    assert sorted(path.name for path in (tmp_path / "full" / "checkpoints").iterdir()) == ["best", "last"]
    assert resume(tmp_path / "full").test == whole.test
    assert content(tmp_path / "full") == content(tmp_path / "whole")


def test_resuming_a_finished_run_repeats_its_result(csv, small, tmp_path):
    result = train(csv, small(), tmp_path / "run")
    before = content(tmp_path / "run")
    assert resume(tmp_path / "run").test == result.test
    assert content(tmp_path / "run") == before


def test_training_stops_early_when_validation_no_longer_improves(csv, small, tmp_path):
    result = train(csv, small(lr=1e-12, average=0.0, patience=2, steps=100), tmp_path / "run")
    assert result.steps < 100
    assert result.steps == result.best_step + 2 * 4


def test_a_seed_decides_everything(csv, small, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(csv, small(seed=seed, steps=4), tmp_path / name)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_training_works_off_the_main_thread(csv, small, tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train(csv, small(steps=4), tmp_path / "run")))
    thread.start()
    thread.join()
    assert results[0].steps == 4


def test_resume_refuses_another_series(csv, small, tmp_path, frame):
    with pytest.raises(KeyboardInterrupt):
        train(csv, small(), tmp_path / "run", on_step=stop_after(5))
    frame.loc[0, "load"] += 1.0
    with pytest.raises(DataError, match="values have changed"):
        resume(tmp_path / "run", frame)


def test_a_run_on_a_data_frame_needs_it_again(csv, small, tmp_path, frame):
    with pytest.raises(KeyboardInterrupt):
        train(frame, small(), tmp_path / "run", on_step=stop_after(5))
    with pytest.raises(ConfigError, match="give it again"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", csv).steps == 12


@pytest.mark.parametrize("file", ["state.npz", "state.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_damaged_checkpoint_is_refused_by_name(csv, small, tmp_path, file, damage):
    with pytest.raises(KeyboardInterrupt):
        train(csv, small(), tmp_path / "run", on_step=stop_after(5))
    path = tmp_path / "run" / "checkpoints" / "last" / file
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    with pytest.raises(CheckpointError, match="checkpoints/last"):
        resume(tmp_path / "run")


def test_a_folder_that_is_taken_is_left_alone(csv, small, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="not an empty folder"):
        train(csv, small(), tmp_path / "run")
    train(csv, small(steps=4), tmp_path / "other")
    with pytest.raises(ConfigError, match="holds a run already"):
        train(csv, small(), tmp_path / "other")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_bad_data_leaves_no_folder(csv, small, tmp_path):
    with pytest.raises(DataError):
        train(csv, small(target="cold"), tmp_path / "run")
    with pytest.raises(ConfigError, match="period 150 is too long"):
        train(csv, small(period=150), tmp_path / "run")
    with pytest.raises(ConfigError, match="headdim"):
        train(csv, small(headdim=5), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("normalise", ["window", "train"])
@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-170, 1e-310])
def test_values_too_large_or_small_to_scale_are_refused_by_column_and_leave_no_folder(
    frame, small, tmp_path, normalise, scale
):
    frame["heat"] = frame["heat"] * scale
    with pytest.raises(DataError, match="column 'heat'"):
        train(frame, small(normalise=normalise, features=("heat",)), tmp_path / "run")
    frame["load"] = frame["load"] * scale
    with pytest.raises(DataError, match="column 'load'"):
        train(frame, small(normalise=normalise), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("row", [120, 159])
@pytest.mark.parametrize("normalise", ["window", "train"])
def test_a_value_that_overflows_when_scaled_is_refused_by_column_and_leaves_no_folder(
    frame, small, tmp_path, normalise, row
):
    frame.loc[row, "load"] = 1e60
    with pytest.raises(DataError, match=f"column 'load': .* {row + 1} are too large for float32"):
        train(frame, small(normalise=normalise), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_training(csv, small, tmp_path):
    with pytest.raises(NonFiniteError, match=r"loss is (nan|inf) at step \d+; a smaller lr"):
        train(csv, small(lr=1e30, clip=0.0, warmup=0, steps=40), tmp_path / "run")


@pytest.mark.parametrize("lr", [1e4, 1e30])
def test_a_validation_loss_that_is_no_number_stops_training_before_anything_is_saved(
    csv, small, tmp_path, lr
):
    config = small(lr=lr, warmup=0, steps=2, evaluate_every=1, average=0.0)
    with pytest.raises(NonFiniteError, match=r"the validation loss is (nan|inf) at step 1; a smaller lr"):
        train(csv, config, tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_float64_is_possible(csv, small, tmp_path):
    result = train(csv, small(dtype="float64", steps=4), tmp_path / "run")
    assert {str(value.dtype) for value in result.forecaster().state_dict().values()} == {"float64"}
