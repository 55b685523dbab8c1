"""A whole run: what it leaves behind, that it goes on bit-exactly, and that it refuses what it must."""

from __future__ import annotations

import errno
import json
import shutil
import threading

import numpy as np
import pandas as pd
import pytest

from assertions import assert_close, assert_value
from mamba2_bridge.exceptions import CheckpointError, ConfigError, DataError, NonFiniteError
from mamba2_bridge.training import Run, TrainConfig, resume, train


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


def tamper(path, keys, value):
    """Set one value of a JSON file, by the keys that lead to it."""
    whole = json.loads(path.read_text())
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(whole))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run with a best and a last checkpoint, to be copied, and its series."""
    rows = np.arange(160)
    frame = pd.DataFrame({"day": rows, "load": np.sin(rows)})
    folder = tmp_path_factory.mktemp("interrupted")
    sizes = {"window": 16, "d_model": 8, "n_layer": 1, "d_state": 4, "headdim": 4, "chunk_size": 8}
    config = TrainConfig("load", time="day", steps=12, batch_size=8, evaluate_every=4, **sizes)
    with pytest.raises(KeyboardInterrupt):
        train(frame, config, folder / "run", on_step=stop_after(5))
    return folder / "run", frame


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("format",), 2, "format is 2"),
        (("data",), 3, "data is 3"),
        (("digest",), None, "digest is None"),
        (("config",), [], r"config is \[\]"),
        (("config", "lr"), "x", "lr must be a number"),
        (("config", "depth"), 1, "unknown fields depth"),
        (("config", "features"), 3, "not iterable"),
        (("config", "device"), 3, "device is 3"),
        (("scaling",), [], r"scaling is \[\]"),
        (("scaling", "kind"), "x", "kind must be"),
        (("scaling", "change"), "x", "scaling.change"),
        (("scaling", "change"), 0, "scaling.change must be above 0"),
        (("scaling", "smallest_spread"), [1.0, 1.0], "list of 1 numbers"),
        (("scaling", "smallest_spread"), 1.0, "list of 1 numbers"),
    ],
)
def test_an_altered_config_of_a_run_is_refused_by_name(interrupted, tmp_path, keys, value, words):
    run, frame = interrupted
    shutil.copytree(run, tmp_path / "run")
    tamper(tmp_path / "run" / "config.json", keys, value)
    with pytest.raises(CheckpointError, match=rf"run/config\.json is damaged: .*{words}"):
        resume(tmp_path / "run", frame)
    with pytest.raises(CheckpointError, match=rf"run/config\.json is damaged: .*{words}"):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("step",), "x", "step must be a whole number from 0 to 12, got 'x'"),
        (("step",), 13, "step must be"),
        (("step",), 3, "best_step must be"),
        (("best_loss",), "x", "best_loss must be a number"),
        (("best_step",), None, "best_step must be"),
        (("without_best",), [], "without_best must be"),
        (("order",), 3, ""),
        (("order", "state"), "x", ""),
        (("record",), [], ""),
        (("record", "losses"), [1.0], "1 losses are recorded of 5 steps"),
        (("record", "losses", 0), "x", "'x' in place of a number"),
        (("record", "evaluations", 0), {}, ""),
        (("record", "evaluations", 0, "gradient_norms"), 3, ""),
    ],
)
def test_an_altered_state_is_refused_by_name(interrupted, tmp_path, keys, value, words):
    run, frame = interrupted
    shutil.copytree(run, tmp_path / "run")
    tamper(tmp_path / "run" / "checkpoints" / "last" / "state.json", keys, value)
    with pytest.raises(CheckpointError, match=rf"can't go on from .*checkpoints/last: .*{words}"):
        resume(tmp_path / "run", frame)


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors", ""])
def test_a_missing_best_checkpoint_is_named_with_what_to_do(interrupted, tmp_path, gone):
    run, frame = interrupted
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    if gone:
        (folder / "checkpoints" / "best" / gone).unlink()
    else:
        shutil.rmtree(folder / "checkpoints" / "best")
    words = (
        rf"checkpoints/best/{gone or 'config.json'} is missing: .*delete all in .*checkpoints and .*--resume"
    )
    with pytest.raises(CheckpointError, match=words):
        resume(folder, frame)
    with pytest.raises(CheckpointError, match=words):
        Run.load(folder)
    for one in (folder / "checkpoints").iterdir():
        shutil.rmtree(one)
    assert resume(folder, frame).steps == 12


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


@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_weights_that_are_no_numbers_stop_training_by_name_before_anything_is_saved(
    csv, small, tmp_path, clip
):
    config = small(lr=1e20, weight_decay=1e30, clip=clip, warmup=0, steps=2, evaluate_every=1)
    with pytest.raises(NonFiniteError, match=r"the update of \S+ is (nan|inf) at step 1; a smaller lr"):
        train(csv, config, tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_float64_is_possible(csv, small, tmp_path):
    result = train(csv, small(dtype="float64", steps=4), tmp_path / "run")
    assert {str(value.dtype) for value in result.forecaster().state_dict().values()} == {"float64"}
