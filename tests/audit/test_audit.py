"""The audit of native models, and its command."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mamba2_bridge as mb
from mamba2_bridge.cli.audit import audit as command
from mamba2_bridge.cli.candle_ops import candle_ops
from native_models import OPTIONS, forecaster, mixer, noise, scatter

CHECKS = ["graph", "initial values", "staleness", "precision", "gradients", "optimizer step"]


@pytest.mark.parametrize("kernels", ["fused", "composed"])
@pytest.mark.parametrize("option", ["plain", "groups", "gated MLP", "no norm", "all"])
def test_healthy_mixers_pass(option, kernels):
    cfg = mb.Mamba2Config(**{"d_model": 8, "d_state": 4, "headdim": 4, "chunk_size": 16, **OPTIONS[option]})
    model = mb.Mamba2(cfg, "float64", kernels=kernels)
    scatter(model)
    report = mb.audit(model, noise(2, 9, 8), directions=1)
    assert report.passed, str(report)
    assert list(report.looked_at) == CHECKS
    # What hardly changes the loss tells nothing of its precision.
    counts = [count for check, count in report.looked_at.items() if check != "precision"]
    assert counts == 5 * [len(model.varmap)]
    assert report.looked_at["precision"] > len(model.varmap) // 2


def test_a_forecaster_in_float32_passes_and_stays_as_it_is():
    model = forecaster("float32")
    before = model.state_dict()
    x, target = noise(2, 7, 3, dtype="float32"), noise(2, 2, dtype="float32")
    report = mb.audit(model, (x, target), directions=1)
    report.raise_for_findings()
    for name, value in model.state_dict().items():
        assert np.array_equal(value, before[name]), name


def test_parameters_of_zeros_and_those_without_influence_are_named():
    model = mixer()
    model.varmap["out_proj.weight"] = np.zeros((8, 16))
    report = mb.audit(model, noise(2, 5, 8), directions=1)
    named = {(finding.check, finding.name) for finding in report.findings}
    assert ("initial values", "out_proj.weight") in named
    assert ("graph", "A_log") in named  # behind zeros nothing has a gradient
    assert ("staleness", "A_log") in named
    with pytest.raises(mb.AuditError, match=r"out_proj\.weight"):
        report.raise_for_findings()


def test_a_clamp_that_is_always_active_may_be_allowed():
    model = mixer(dt_limit=(100.0, 200.0))
    x = noise(2, 5, 8)
    found = {finding.name for finding in mb.audit(model, x, directions=1).findings}
    assert "dt_bias" in found
    allowed = mb.audit(model, x, directions=1, allowing_zero=["dt_bias"])
    assert ("graph", "dt_bias") not in {(finding.check, finding.name) for finding in allowed.findings}


def test_nan_is_found():
    model = mixer()
    model.varmap.update({"D": np.array([1.0, np.nan, 1.0, 1.0])}, allow_nonfinite=True)
    report = mb.audit(model, noise(1, 5, 8), directions=1)
    assert str(report).splitlines() == [
        "finite values      8 looked at  1 found",
        "  NaN or infinite: D: 1 of 4 elements",
    ]


def test_what_does_not_fit_is_refused():
    model = mixer()
    with pytest.raises(mb.ShapeError, match="u must have shape"):
        mb.audit(model, noise(2, 5, 7))
    with pytest.raises(mb.DTypeError):
        mb.audit(model, noise(2, 5, 8, dtype="float32"))
    with pytest.raises(mb.ShapeError, match="target"):
        mb.audit(model, (noise(2, 5, 8), noise(2, 5, 7)))
    with pytest.raises(mb.ConfigError, match="a batch with elements"):
        mb.audit(model, noise(2, 0, 8))
    with pytest.raises(mb.ConfigError, match="directions must be at least 1, got 0"):
        mb.audit(model, noise(2, 5, 8), directions=0)
    with pytest.raises(mb.StateDictError, match="no_such"):
        mb.audit(model, noise(2, 5, 8), allowing_zero=["no_such"])


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_command(tmp_path):
    model = forecaster("float32")
    model.save_pretrained(tmp_path / "run" / "checkpoints" / "best")
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "best"):
        result = run(folder, "--seqlen", 6, "--directions", 1)
        assert result.exit_code == 0, result.output
        assert [line.split("  ")[0].strip() for line in result.output.splitlines()] == CHECKS
    model.varmap["layers.0.mixer.D"] = np.zeros(4, np.float32)
    model.save_pretrained(tmp_path / "zero")
    result = run(tmp_path / "zero", "--seqlen", 6, "--directions", 1)
    assert result.exit_code == 1
    assert "layers.0.mixer.D" in result.output
    assert run(tmp_path / "zero", "--seqlen", 6, "--allowing-zero", "layers.0.mixer.D").exit_code == 0
    assert run(tmp_path / "none").exit_code == 2


def verdicts(table):
    """The table without figures, whose last digits are a processor's."""
    return re.sub(r"(right to)[^(;|]*", r"\1 ", table)


def test_the_table_of_candles_operations_is_that_of_the_documentation():
    result = CliRunner().invoke(candle_ops)
    assert result.exit_code == 0
    document = (Path(__file__).parents[2] / "docs" / "candle.md").read_text(encoding="utf-8")
    assert verdicts(result.output.strip()) in verdicts(document)
