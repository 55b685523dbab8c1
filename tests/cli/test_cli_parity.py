"""The commands parity, report and doctor."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("pandas")
from mamba2_bridge.cli import parity as command
from mamba2_bridge.cli.doctor import doctor
from mamba2_bridge.cli.report import report
from mamba2_bridge.parity import check
from mamba2_bridge.parity.doctor import seal
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.mamba2_cases import mixer_cases, noise_case
from mamba2_bridge.testing.faults import FAULTS, FaultyTwin

pytestmark = pytest.mark.torch
DOUBLED = next(fault for fault in FAULTS if fault.name == "gradient of dt_bias doubled")


@pytest.fixture
def short(monkeypatch):
    """Two cases and two optimizer steps."""
    monkeypatch.setattr(
        check, "check_cases", lambda seed: [*mixer_cases(seed)[:2], noise_case(seed, steps=2)]
    )


def run(monkeypatch, runner, *arguments):
    monkeypatch.setattr(command, "NativeRunner", lambda kernels, device: runner)
    return CliRunner().invoke(command.parity, [*arguments])


@pytest.mark.usefixtures("short")
def test_the_command_passes_and_names_its_report(monkeypatch, tmp_path):
    result = run(monkeypatch, TwinRunner("chunked"), "--quick", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "parity.json").read_text())
    assert content["passed"]
    assert content["notes"]["seed"] == 0
    assert len(content["cases"]) == 3
    assert result.output.endswith(f"report: {tmp_path / 'parity.html'}\n")
    assert "AdamW on noise" in (tmp_path / "parity.html").read_text()


@pytest.mark.usefixtures("short")
def test_the_command_names_what_is_wrong_and_report_says_it_again(monkeypatch, tmp_path):
    result = run(monkeypatch, FaultyTwin(DOUBLED), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "FAIL plain in float64: grad.param.dt_bias[" in result.output
    assert "2 times what it should be" in result.output
    again = CliRunner().invoke(
        report, [str(tmp_path / "parity.json"), "--html", str(tmp_path / "again.html")]
    )
    assert again.exit_code == 1
    assert "FAIL plain in float64: grad.param.dt_bias[" in again.output
    assert (tmp_path / "again.html").read_text() == (tmp_path / "parity.html").read_text()


@pytest.mark.usefixtures("short")
def test_the_command_trains_a_forecaster_only_where_the_comparison_passes(monkeypatch, tmp_path):
    trained = []

    def train(out, seed, steps, on_step):
        trained.append((out, seed, steps))
        score = {"rmse": 0.25, "mae": 0.125}
        return {
            "test": score,
            "baselines": {"persistence": score},
            "beats_baselines": False,
            "folder": "a folder",
        }

    monkeypatch.setattr(command, "train_forecaster", train)
    options = ["--out", str(tmp_path), "--seed", "1", "--steps", "7"]
    assert run(monkeypatch, FaultyTwin(DOUBLED), *options).exit_code == 1
    assert not trained
    result = run(monkeypatch, TwinRunner("chunked"), *options)
    assert result.exit_code == 0, result.output
    assert trained == [(tmp_path, 1, 7)]
    assert "not better than: persistence; in a folder" in result.output
    assert json.loads((tmp_path / "parity.json").read_text())["notes"]["forecaster"]["test"]["rmse"] == 0.25


def test_wrong_usage_is_refused(tmp_path):
    assert CliRunner().invoke(command.parity, ["--seed", "-1"]).exit_code == 2
    file = tmp_path / "file"
    file.touch()
    assert CliRunner().invoke(command.parity, ["--out", str(file)]).exit_code == 2
    assert CliRunner().invoke(report, [str(tmp_path / "none.json")]).exit_code == 2
    assert CliRunner().invoke(report, [str(file)]).exit_code == 2


@pytest.mark.slow
def test_the_examination_is_sealed():
    result = CliRunner().invoke(doctor)
    assert result.exit_code == 0, result.output
    text, _, closing = result.stdout.strip().rpartition("\n\nseal ")
    assert closing == seal(text)
    assert seal(text.replace("agree", "DIFFER", 1)) != closing
    assert "native (fused) against twin (recurrence): 392 tensors" in text
