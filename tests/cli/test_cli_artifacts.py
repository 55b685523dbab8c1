"""The commands record and compare."""

from __future__ import annotations

import json

import pytest

import mamba2_bridge as mb
from mamba2_bridge.parity.artifact import read

pytest.importorskip("safetensors")

SMALL = ("--d-model", 16, "--d-state", 8, "--headdim", 8, "--seqlen", 9)


@pytest.fixture
def recorded(command, tmp_path):
    """Record with some options; give the folder."""

    def run(name, *options):
        done = command("record", "--out", tmp_path / name, *options)
        assert done.exit_code == 0, done.output
        assert str(tmp_path / name) in done.output
        return tmp_path / name

    return run


@pytest.mark.torch
@pytest.mark.parametrize("kind", [(), ("--n-layer", 2)])
def test_two_recordings_agree(kind, command, recorded, tmp_path):
    pytest.importorskip("torch")
    a = recorded("a", *SMALL, *kind, "--model", "twin", "--steps", 2)
    b = recorded("b", *SMALL, *kind, "--steps", 2)
    done = command("compare", a, b, "--json", tmp_path / "report.json")
    assert done.exit_code == 0, done.output
    assert "native (auto) in float64, recorded" in done.output
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["passed"]
    assert len(content["notes"]["remarks"]) == 2
    assert {row["step"] for row in content["results"]} == {0, 1, 2}
    for side in ("native", "native:composed", "twin:chunked"):
        done = command("compare", a, side)
        assert done.exit_code == 0, done.output


def test_a_checkpoint_is_recorded_with_its_own_parameters(command, recorded, tmp_path):
    mixer = mb.Mamba2Config(d_model=8, headdim=4, d_state=4, dt_limit=(0.0, 0.5))
    for name, model in {
        "mixer": mb.Mamba2(mixer, seed=5),
        "forecaster": mb.Mamba2Forecaster(mb.Mamba2ForecasterConfig(mixer, n_layer=1, d_input=2, d_output=1)),
    }.items():
        model.save_pretrained(tmp_path / name)
        a = recorded(f"{name}-a", "--checkpoint", tmp_path / name, "--seed", 3)
        case = read(a).case
        assert case.config["dt_limit"] == (0.0, 0.5)
        assert {key: value.tolist() for key, value in case.params.items()} == {
            key: value.tolist() for key, value in model.state_dict().items()
        }
        assert command("compare", a, "native:composed").exit_code == 0
    done = command("record", "--out", tmp_path / "b", "--checkpoint", tmp_path / "mixer", "--d-model", 4)
    assert done.exit_code == 2
    assert "leave out --d-model" in done.output


def test_a_mismatch_is_1_and_named(command, recorded, tmp_path):
    a = recorded("a", *SMALL, "--no-floors")
    strict = tmp_path / "policy.json"
    row = {
        "tensor": "out",
        "quantity": "*",
        "dtype": "float32",
        "flat": 0.0,
        "per_own_loss": 0.0,
        "reason": "-",
    }
    strict.write_text(json.dumps([row]))
    done = command("compare", a, "native", "--policy", strict)
    assert done.exit_code == 1
    assert "out[" in done.output
    report = tmp_path / "report.json"
    done = command("compare", a, "native", "--policy", strict, "--stop-at-first", "--json", report)
    assert done.exit_code == 1
    content = json.loads(report.read_text())
    assert [row["passed"] for row in content["results"]].count(False) == 1
    assert not content["results"][-1]["passed"]


def test_what_cannot_be_compared_is_2_in_one_line(command, recorded, tmp_path):
    a, b = recorded("a", *SMALL), recorded("b", *SMALL, "--seed", 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "policy.json").write_text("{}")
    for arguments, message in {
        (a, b): "is of another case than",
        (a, tmp_path / "empty"): "it has no manifest.json",
        (tmp_path / "nothing", a): "there is no artifact",
        (a, "jax"): "CANDIDATE must be an artifact or one of native, native:fused",
        (a, a, "--policy", tmp_path / "policy.json"): "must be a list of tolerances",
    }.items():
        done = command("compare", *arguments)
        assert done.exit_code == 2, done.output
        assert message in done.output
        assert "Traceback" not in done.output
    done = command("record", "--out", tmp_path, *SMALL)
    assert done.exit_code == 2
    assert "it is not replaced" in done.output
    done = command("record", "--out", tmp_path / "c", *SMALL, "--headdim", 5)
    assert done.exit_code == 2
