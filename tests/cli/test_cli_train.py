"""``mamba2-bridge train`` and ``predict``: what they print and write, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from mamba2_bridge import datasets

SMALL = [
    *("--window", "12", "--d-model", "8", "--n-layer", "1", "--d-state", "4", "--headdim", "4"),
    *("--batch-size", "8", "--evaluate-every", "4", "--warmup", "2"),
]


def test_train_writes_a_run_and_prints_errors_beside_the_baselines(command, csv, tmp_path):
    done = command(
        "train", csv, "--target", "load", "--time", "day", "--features", "heat", "--period", "6",
        "--out", tmp_path / "run", "--steps", "8", *SMALL,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for word in ("mamba2", "persistence", "seasonal naive (6)", "autoregression", "all inputs", "RMSE"):
        assert word in done.output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["features"] == ["heat"]
    assert config["config"]["window"] == 12
    assert (tmp_path / "run" / "report.png").exists()


def test_resuming_a_finished_run_says_so_first(command, csv, tmp_path):
    done = command("train", csv, "--target", "load", "--out", tmp_path / "run", "--steps", "4", *SMALL)
    assert done.exit_code == 0, done.output
    assert "already finished" not in done.output
    again = command("train", "--resume", tmp_path / "run")
    assert again.exit_code == 0, again.output
    assert again.stdout.strip().splitlines()[0] == "already finished after step 4"


def test_predict_writes_a_csv_or_prints_it(command, csv, tmp_path):
    done = command("train", csv, "--target", "load", "--out", tmp_path / "run", "--steps", "4", *SMALL)
    assert done.exit_code == 0, done.output
    printed = command("predict", tmp_path / "run", csv)
    assert printed.exit_code == 0, printed.output
    written = command("predict", tmp_path / "run", csv, "--out", tmp_path / "out.csv")
    assert written.exit_code == 0, written.output
    assert (tmp_path / "out.csv").read_text() == printed.stdout
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["row", "load", "prediction"]
    assert table["row"].tolist() == list(range(13, 122))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give FILE, --target and --out, or --resume RUN"),
        (["{csv}", "--target", "load"], "give FILE, --target and --out"),
        (["{csv}", "--target", "load", "--out", "{run}", "--window", "1"], "window must be 2 or more"),
        (["{csv}", "--target", "load", "--out", "{run}", "--window", "one"], "--window"),
        (["{csv}", "--target", "load", "--out", "{run}", "--normalise", "both"], "--normalise"),
        (["{csv}", "--target", "load", "--out", "{run}", "--headdim", "5"], "headdim"),
        (["--resume", "{run}", "--lr", "1"], "leave out --lr"),
        (["{csv}", "--target", "cold", "--out", "{run}"], "no column 'cold'"),
        (["nowhere.csv", "--target", "load", "--out", "{run}"], "nowhere.csv"),
        (["{csv}", "--target", "load", "--out", "{run}", "--window", "100"], "too few rows"),
        (["--resume", "{run}"], "holds no run"),
        (["{csv}", "--target", "load", "--out", "{run}", "--d-model", "100000000"], "memory"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(command, csv, tmp_path, arguments, words):
    filled = [one.format(csv=csv, run=tmp_path / "run") for one in arguments]
    done = command("train", *filled)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert "Traceback" not in done.output
    assert done.stderr.strip().splitlines()[-1].startswith("Error: ")
    assert not (tmp_path / "run").exists()


def test_predict_does_not_write_over_its_series_or_a_pipe(command, csv, tmp_path):
    done = command("train", csv, "--target", "load", "--out", tmp_path / "run", "--steps", "4", *SMALL)
    assert done.exit_code == 0, done.output
    before = csv.read_bytes()
    (tmp_path / "link.csv").symlink_to(csv)
    os.mkfifo(tmp_path / "pipe")
    for out, words in (
        (csv, "the series itself"),
        ("link.csv", "the series itself"),
        ("pipe", "regular file"),
    ):
        refused = command("predict", tmp_path / "run", csv, "--out", tmp_path / out)
        assert refused.exit_code == 2, refused.output
        assert refused.stderr.startswith("Error: ")
        assert words in refused.stderr
    assert csv.read_bytes() == before
    assert (tmp_path / "pipe").is_fifo()


def test_predict_on_no_run_fails_in_one_line(command, csv, tmp_path):
    done = command("predict", tmp_path / "run", csv)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert "holds no run" in done.stderr


def test_ctrl_c_saves_and_resume_ends_as_if_nothing_had_happened(command, csv, tmp_path):
    settings = ["--target", "load", "--steps", "150", "--patience", "0", *SMALL]
    whole = command("train", csv, "--out", tmp_path / "whole", *settings)
    assert whole.exit_code == 0, whole.output
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mamba2_bridge.cli", "train"),
            *(str(csv), "--out", str(tmp_path / "halves"), *settings),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "halves/checkpoints/last").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, (output, errors)
    assert "everything is saved" in errors
    assert f"mamba2-bridge train --resume {tmp_path / 'halves'}" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "halves" / "test.csv").exists()
    resumed = command("train", "--resume", tmp_path / "halves")
    assert resumed.exit_code == 0, resumed.output
    assert "already finished" not in resumed.output
    for name in (
        "metrics.json",
        "test.csv",
        "checkpoints/best/model.safetensors",
        "checkpoints/last/model/model.safetensors",
        "checkpoints/last/state.json",
    ):
        assert (tmp_path / "halves" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_the_shipped_series_can_be_named_on_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "mamba2_bridge.datasets", "co2"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(datasets.path("co2"))
    wrong = subprocess.run(
        [sys.executable, "-m", "mamba2_bridge.datasets"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "usage" in wrong.stderr
