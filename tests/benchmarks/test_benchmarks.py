"""The logic of the benchmarks: nothing is timed here, and nothing compiled."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import tables
from benchmarks.agreement import worst_error
from benchmarks.cli import main
from benchmarks.contenders.registry import CONTENDERS, OURS
from benchmarks.contenders.registry import UnavailableError as Unavailable
from benchmarks.flops import flops, mixer_flops_per_token
from benchmarks.interference import busy_ticks
from benchmarks.limit import limit_seconds, share_of_limit
from benchmarks.machine import processor, simd
from benchmarks.parameters import inputs, parameters
from benchmarks.report import document
from benchmarks.results import Machine, Measurement, Peak, Results, StageTime, Timing, WorkResult
from benchmarks.schedule import TRIES, Effort, interleave
from benchmarks.session import Round
from benchmarks.sizes import BLOCK, StackSize
from benchmarks.targets import TARGETS, checks, ratio
from benchmarks.works import QUICK, WORKS
from mamba2_bridge import Mamba2, Mamba2Config, Mamba2Forecaster, Mamba2ForecasterConfig, backend

GIGA = 1e9


def timing(best: float) -> Timing:
    return Timing(best=best, median=best * 1.1, calls=10, rounds=5, discarded=1, quiet=True)


def measured(best: float, mebibytes: int = 100) -> Measurement:
    return Measurement(timing(best), mebibytes * 2**20, "y", 1e-6)


def result(work: str, **measurements: Measurement) -> WorkResult:
    named = {name.replace("_", "-"): one for name, one in measurements.items()}
    return WorkResult(work, flops(WORKS[work]), 200 * GIGA, named)


@pytest.fixture
def results() -> Results:
    return Results(
        date="2026-01-02",
        commit="0123456789ab",
        threads=2,
        machine=Machine("A processor", ["avx2", "fma"], 2, 8.0),
        versions={"python": "3.11.0", "torch": "2.15.0"},
        peak=Peak(
            "gemm crate", {"float32": 200 * GIGA}, {"float32": "(2048, 2048) · (2048, 2048)"}, 10 * GIGA
        ),
        works=[
            result("forward-2048", ours=measured(0.1), hf=measured(0.25), tuned_compile=measured(0.125)),
            result(
                "step",
                ours=measured(0.001),
                hf=measured(0.01),
                tuned_compile=Measurement(note="needs a compiler"),
            ),
            result("forward+backward-8192", ours=measured(1.2, 500), hf=measured(3.0, 2000)),
            result("forward-65536", ours=measured(3.3)),
        ],
        stages=[StageTime("forward-2048", "in_proj", 0.06), StageTime("forward-2048", "something", 0.01)],
    )


# FLOPs


def test_flops_of_the_130m_block_are_those_counted_by_hand():
    by_stage = mixer_flops_per_token(BLOCK, 2048)
    assert by_stage["in_proj"] == 2 * 768 * 3352
    assert by_stage["out_proj"] == 2 * 1536 * 768
    assert by_stage["conv"] == 2 * 1792 * 4
    assert by_stage["scan"] == pytest.approx(0.90e6, rel=0.01)
    assert by_stage["elementwise"] == pytest.approx(0.03e6, abs=0.005e6)
    assert sum(by_stage.values()) == pytest.approx(8.45e6, abs=0.005e6)


def test_backward_is_worth_two_forward_passes():
    assert flops(WORKS["forward+backward-512"]) == pytest.approx(3 * flops(WORKS["forward-512"]), abs=3)


def test_flops_grow_with_tokens_and_layers():
    assert flops(WORKS["forward-8192"]) == 4 * flops(WORKS["forward-2048"])
    small = WORKS["small-forward"]
    assert isinstance(small.size, StackSize)
    layers = 4 * sum(mixer_flops_per_token(small.size.mixer, 64).values())
    assert flops(small) == pytest.approx(32 * 64 * layers, rel=0.05)


def test_a_step_counts_the_state_once():
    assert mixer_flops_per_token(BLOCK, 1)["scan"] == 2 * (128 + 1536) + 4 * 1536 * 128


# works and their parameters


def test_every_target_and_quick_work_exists():
    assert {target.work for target in TARGETS} <= set(WORKS)
    assert set(QUICK) <= set(WORKS)
    assert all(WORKS[target.work].contested for target in TARGETS)


@pytest.mark.parametrize("name", ["step", "small-forward+backward"])
def test_parameters_are_those_of_our_model(name):
    work = WORKS[name]
    if isinstance(work.size, StackSize):
        size = work.size
        mixer = Mamba2Config(**vars(size.mixer))
        model = Mamba2Forecaster(Mamba2ForecasterConfig(mixer, size.n_layer, size.d_input, size.d_output))
    else:
        model = Mamba2(Mamba2Config(**vars(work.size)))
    drawn = parameters(work)
    assert {n: v.shape for n, v in drawn.items()} == {n: v.shape for n, v in model.state_dict().items()}
    model.load_state_dict(drawn)
    u, dy = inputs(work)
    if work.mode != "step":
        assert model(u).shape == dy.shape


# agreement


def test_agreement_names_the_worst_array():
    want = {"y": np.ones(3), "grad.A_log": np.full(2, 4.0)}
    got = {"y": np.ones(3), "grad.A_log": np.array([4.0, 4.5])}
    assert worst_error(got, want) == ("grad.A_log", 0.125)


def test_a_missing_gradient_is_no_agreement():
    assert worst_error({"y": np.ones(1)}, {"y": np.ones(1), "grad.D": np.ones(1)}) == ("grad.D", math.inf)


# rounds


def test_rounds_are_interleaved():
    order = []

    def turn(name):
        return lambda: order.append(name) or Round([0.1], 0.0)

    timings = interleave({"a": turn("a"), "b": turn("b")}, Effort(rounds=3), lambda: order.append("probe"))
    assert order == ["probe", "a", "b"] * 3
    assert timings["a"].rounds == timings["b"].calls == 3


def test_disturbed_rounds_are_discarded_and_repeated():
    rounds = iter([Round([0.01], 0.5), Round([0.3, 0.2], 0.0), Round([0.4], 0.01)])
    done = interleave({"a": lambda: next(rounds)}, Effort(rounds=2), lambda: None)["a"]
    assert (done.best, done.median, done.calls, done.rounds, done.discarded, done.quiet) == (
        0.2,
        0.3,
        3,
        2,
        1,
        True,
    )


def test_a_machine_that_is_never_quiet_gives_its_least_disturbed_rounds():
    rounds = [Round([1.0 + number], 0.9 - number / 10) for number in range(2 * TRIES)]
    done = interleave({"a": lambda: rounds.pop(0)}, Effort(rounds=2), lambda: None)["a"]
    assert rounds == []
    assert (done.best, done.rounds, done.discarded, done.quiet) == (5.0, 2, 4, False)


def test_slow_contenders_get_fewer_rounds():
    done = interleave({"a": lambda: Round([10.0], 0.0)}, Effort(8, contender_seconds=15), lambda: None)["a"]
    assert done.rounds == 2


def test_slow_contenders_are_not_tried_for_ever():
    done = interleave({"a": lambda: Round([20.0], 0.9)}, Effort(8, contender_seconds=10), lambda: None)["a"]
    assert (done.rounds, done.quiet) == (2, False)


def test_busy_ticks_leave_out_idle_and_guest_times():
    stat = "cpu  100 10 50 9999 888 3 4 5 70 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert busy_ticks(stat) == 100 + 10 + 50 + 3 + 4 + 5


# the machine


def test_the_machine_is_named_by_its_processor():
    family = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\n"
    cpuinfo = f"{family}model name\t: AMD EPYC\nflags\t\t: fpu avx2 fma avx512f\n\nprocessor\t: 1\n"
    assert processor(cpuinfo) == "AMD EPYC (family 25, model 1)"
    assert simd(cpuinfo) == ["avx2", "avx512f", "fma"]


# limit, ratios and targets


def test_the_limit_is_flops_at_the_peak_of_the_works_own_rounds(results):
    results.peak.flops_per_second["float32"] = 300 * GIGA  # another work's
    assert limit_seconds(results, "forward-2048") == pytest.approx(8.45e6 * 2048 / (200 * GIGA), rel=1e-3)
    assert share_of_limit(results, "forward-2048", OURS) == pytest.approx(0.865, abs=1e-3)
    assert limit_seconds(results, "step") is None
    assert limit_seconds(results, "forward-512") is None


def test_ratios_are_ours_over_theirs(results):
    assert ratio(results, "forward-2048", "hf") == pytest.approx(0.4)
    assert ratio(results, "step", "tuned-compile") is None
    assert ratio(results, "forward-512", "hf") is None


def test_targets_pass_fail_or_are_not_measured(results):
    verdicts = {check.title: check.passed for check in checks(results)}
    assert verdicts["block forward 2048: share of the limit"] is False
    assert verdicts["block forward 2048: of tuned, compiled's time"] is False
    assert verdicts["block forward 2048: of transformers's time"] is False
    assert verdicts["one decode step of a block: of transformers's time"] is True
    assert verdicts["one decode step of a block: of tuned, compiled's time"] is None
    assert verdicts["block forward + backward 8192: peak memory growth, MiB"] is True
    assert verdicts["forward: time over limit at 65536, of that at 2048"] is True
    assert "block forward 512: share of the limit" not in verdicts


def test_there_is_a_line_for_every_number_of_the_issue(results):
    whole = [result(name) for name in WORKS]
    assert len(checks(replace(results, works=whole))) == 8 + 9 + 9 + 1 + 2
    assert len(checks(results)) == (3 + 2) + (3 + 1) + 1


def test_a_run_on_a_gpu_is_held_to_no_target_of_the_cpus(results, tmp_path):
    gpu = replace(results.machine, gpu="A GPU")
    there = replace(results, device="cuda:0", machine=gpu)
    assert checks(there) == []
    assert "- GPU: A GPU\n" in document(there)
    assert "GPU" not in document(results).partition("## Times")[0]


@pytest.mark.skipif(backend() == "cuda", reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_an_error_before_anything_runs():
    done = CliRunner().invoke(main, ["run", "--device", "cuda:0", "--quick"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: there is no device 'cuda:0': ")


# contenders


def test_a_contender_says_why_it_leaves_a_work_out():
    with pytest.raises(Unavailable, match="left out"):
        CONTENDERS["twin-compile"].make(WORKS["forward+backward-8192"], 2, "cpu")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    entry = replace(CONTENDERS["hf"], module="nowhere")
    with pytest.raises(Unavailable, match=r"needs benchmarks\.contenders\.nowhere.*mamba2-bridge\[bench\]"):
        entry.make(WORKS["step"], 2, "cpu")


# results and report


def test_results_survive_json(results, tmp_path):
    path = tmp_path / "deeper" / "run.json"
    results.write(path)
    assert Results.read(path) == results
    assert json.loads(path.read_text())["works"][0]["measurements"]["hf"]["timing"]["best"] == 0.25


def test_the_times_table(results):
    rows = {row[0]: row[1:] for row in tables.times(results).rows}
    assert rows["block forward 2048"] == ["86.5", "100", "0.87", "250 (0.40)", "125 (0.80)"]
    assert rows["one decode step of a block"] == ["-", "1", "-", "10 (0.10)", "-"]
    assert "block forward 65536" not in rows


def test_the_growth_table_has_lengths_that_ours_did_alone(results):
    rows = {tuple(row[:2]): row[2:] for row in tables.growth(results).rows}
    assert rows["forward", "65536"] == ["50.4", "-", "-"]
    assert rows["forward + backward", "8192"][:2] == ["146.5", "366.2"]


def test_the_breakdown_holds_stages_against_their_own_bounds(results):
    (_, _, ours, bound, share), unknown = tables.breakdown(results).rows
    assert (ours, bound, share) == ("60", "52.7", "0.88")
    assert unknown[-2:] == ["-", "-"]


def test_absent_times_are_explained_once(results):
    assert tables.notes(results) == ["tuned, compiled: needs a compiler: one decode step of a block"]


def test_the_report_is_made_from_the_json_alone(results, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("benchmarks.cli.RESULTS", tmp_path)
    results.write(tmp_path / "performance.json")
    done = CliRunner().invoke(main, ["report", "--out", str(tmp_path / "docs")], catch_exceptions=False)
    assert done.exit_code == 0
    assert "250 (0.40)" in done.output
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert "A processor, 2 cores, 8 GiB; avx2 fma" in text
    assert "| block forward 2048 | 86.5 | 100 | 0.87 | 250 (0.40) | 125 (0.80) |" in text
    assert "| block forward + backward 8192 | 500 | 2000 | - |" in text
    assert "200 GFLOP/s in fp32" in text
    assert (tmp_path / "docs" / "performance.svg").read_text().startswith("<?xml")


def test_a_report_without_results_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.cli.RESULTS", tmp_path)
    done = CliRunner().invoke(main, ["report"])
    assert done.exit_code == 1
    assert "python -m benchmarks run" in done.output


@pytest.mark.parametrize("option", ["--works", "--contenders"])
def test_an_unknown_name_is_refused_with_those_there_are(option):
    done = CliRunner().invoke(main, ["run", option, "nothing"])
    assert done.exit_code == 2
    assert "'nothing' is none of" in done.output
