"""The harness against itself: a healthy pair passes, and every fault that is planted is caught by name."""

import dataclasses
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pandas")
from click.testing import CliRunner
from mamba2_bridge.parity.twin import TwinRunner

from mamba2_bridge.cli import parity as command
from mamba2_bridge.parity import check
from mamba2_bridge.parity.cases import mixer_cases
from mamba2_bridge.parity.compare import compare_case, compare_training, own_losses
from mamba2_bridge.parity.tolerances import quantity_of, tolerance
from mamba2_bridge.parity.training import co2_problem, noise_problem
from mamba2_bridge.torch.reference import Mamba2

pytestmark = pytest.mark.torch
CASES = {case.name: case for case in mixer_cases()}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_chunked_twin_passes(case):
    failures = [
        str(result) for result in compare_case(TwinRunner("chunked"), TwinRunner(), case) if not result.passed
    ]
    assert not failures


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_no_case_excuses_a_wrong_gradient(case):
    """Bounds that the recurrence's own fp32 loss widens stay small: no case nearly cancels."""
    losses = own_losses(TwinRunner().run(case, "float32"), TwinRunner().run(case, "float64"))
    for name, loss in losses.items():
        row = tolerance(quantity_of(name), "float32")
        assert row.bound(loss) <= 100 * row.flat, name


@pytest.mark.parametrize(
    ("problem", "quantity"), [(noise_problem(), "optimizer step"), (co2_problem(steps=4), "training")]
)
def test_training_the_chunked_twin_passes(problem, quantity):
    run = compare_training(TwinRunner("chunked"), TwinRunner(), problem, quantity)
    assert not [str(result) for result in run.results if not result.passed]
    assert len(run.losses["twin (recurrence)"]) == len(problem.batches)
    assert len(run.results) == len(problem.batches) * (1 + len(problem.params))


class Detached(Mamba2):
    """A_log is cut from the graph."""

    def _scan(self, x, dt, A, B, C, D, state):
        return super()._scan(x, dt, A.detach(), B, C, D, state)


class TiledGroups(Mamba2):
    """Head h reads group h modulo ngroups."""

    def _scan(self, x, dt, A, B, C, D, state):
        order = torch.arange(self.nheads) % self.ngroups
        return super()._scan(x, dt, A, B[:, :, order], C[:, :, order], D, state)


class SwappedBC(Mamba2):
    def _scan(self, x, dt, A, B, C, D, state):
        return super()._scan(x, dt, A, C, B, D, state)


class SinglePrecisionInside(Mamba2):
    def _scan(self, x, dt, A, B, C, D, state):
        y, state = super()._scan(*(part.float() for part in (x, dt, A, B, C, D, state)))
        return y.to(x.dtype), state.to(x.dtype)


class NoSkip(Mamba2):
    def _scan(self, x, dt, A, B, C, D, state):
        return super()._scan(x, dt, A, B, C, 0 * D, state)


class ForgottenState(Mamba2):
    def forward(self, u, state=None, return_state=False):
        return super().forward(u, None, return_state)


class StepWithoutClamp(Mamba2):
    def step(self, u_t, state):
        limit, self.dt_limit = self.dt_limit, (0.0, float("inf"))
        try:
            return super().step(u_t, state)
        finally:
            self.dt_limit = limit


class LongConvState(Mamba2):
    """Keeps one column too many, which its own next step refuses."""

    def _convolve(self, xBC, conv_state):
        y, state = super()._convolve(xBC, conv_state)
        return y, torch.nn.functional.pad(state, (1, 0))


class OneNormGroup(Mamba2):
    def __init__(self, *args, **options):
        super().__init__(*args, **options | {"norm_groups": 1})


class WrongGateOrder(Mamba2):
    def __init__(self, *args, norm_before_gate=False, **options):
        super().__init__(*args, norm_before_gate=not norm_before_gate, **options)


class DoubledGradient(Mamba2):
    """The forward is right, the gradient of dt_bias is twice what it should be."""

    def forward(self, u, state=None, return_state=False):
        if self.dt_bias.requires_grad and torch.is_grad_enabled() and not self.dt_bias._backward_hooks:
            self.dt_bias.register_hook(lambda grad: 2 * grad)
        return super().forward(u, state, return_state)


class FaultyRunner(TwinRunner):
    def __init__(self, mixer_class):
        super().__init__()
        self.mixer_class = mixer_class

    @property
    def name(self):
        return self.mixer_class.__name__

    def mixer(self, config, dtype):
        return self.mixer_class(**config, dtype=getattr(torch, dtype))


@pytest.mark.parametrize(
    ("fault", "case", "tensor", "problem"),
    [
        (Detached, "plain", "grad.param.A_log", "missing"),
        (TiledGroups, "groups", "out", None),
        (SwappedBC, "plain", "out", None),
        (SinglePrecisionInside, "plain", "out", None),
        (NoSkip, "plain", "grad.param.D", None),
        (ForgottenState, "states", "grad.init.ssm_state", "missing"),
        (StepWithoutClamp, "dt_limit", "step.out", None),
        (
            LongConvState,
            "plain",
            "every tensor",
            "ValueError: conv_state must be torch.float64 of shape (2, 36, 3), "
            "got torch.float64 of (2, 36, 4)",
        ),
        (OneNormGroup, "groups", "out", None),
        (WrongGateOrder, "norm_before_gate", "out", None),
        (DoubledGradient, "plain", "grad.param.dt_bias", None),
    ],
)
def test_a_planted_fault_is_caught_by_name(fault, case, tensor, problem):
    results = compare_case(FaultyRunner(fault), TwinRunner(), CASES[case], ["float64"])
    failures = {result.tensor: result for result in results if not result.passed}
    assert tensor in failures
    if problem is not None:
        assert failures[tensor].problem == problem
    if fault in (Detached, DoubledGradient, StepWithoutClamp):
        assert all(name == tensor or name.startswith("step.") for name in failures)


class DecaysEverything(TwinRunner):
    def optimizer(self, model, problem):
        settings = problem.optimizer
        return torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)


class RoundedLoss(TwinRunner):
    def train(self, problem, dtype):
        for step in super().train(problem, dtype):
            yield step._replace(loss=float(torch.tensor(step.loss, dtype=torch.float32)))


class StopsEarly(TwinRunner):
    def train(self, problem, dtype):
        yield next(super().train(problem, dtype))


@pytest.mark.parametrize(
    ("runner", "failure"),
    [
        (DecaysEverything(), "step 1: A_log["),
        (RoundedLoss(), "step 1: loss: got"),
        (StopsEarly(), "step 2: StopIteration"),
    ],
)
def test_a_fault_in_training_is_caught_at_its_first_step(runner, failure):
    run = compare_training(runner, TwinRunner(), noise_problem(steps=3), "optimizer step")
    failures = [str(result) for result in run.results if not result.passed]
    assert any(f"AdamW on noise in float64: {failure}" in line for line in failures)


@pytest.fixture
def short(monkeypatch):
    """Two cases and two steps of each problem."""
    monkeypatch.setattr(check, "mixer_cases", lambda seed: mixer_cases(seed)[:2])
    monkeypatch.setattr(check, "noise_problem", lambda seed: noise_problem(seed, steps=2))
    monkeypatch.setattr(check, "co2_problem", lambda seed: co2_problem(seed, steps=2, batch=2))


def run_command(monkeypatch, runner, *arguments):
    monkeypatch.setattr(command, "NativeRunner", lambda kernels: runner)
    return CliRunner().invoke(command.parity, [*arguments])


@pytest.mark.usefixtures("short")
def test_the_command_passes(monkeypatch, tmp_path):
    result = run_command(monkeypatch, TwinRunner("chunked"), "--quick", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "parity.json").read_text())
    assert content["passed"]
    assert content["cases"] == 2
    assert [len(run["losses"]["twin (chunked)"]) for run in content["training"]] == [2, 2]
    assert str(tmp_path / "parity.json") in result.output


@pytest.mark.usefixtures("short")
def test_the_command_names_what_is_wrong(monkeypatch, tmp_path):
    result = run_command(monkeypatch, FaultyRunner(DoubledGradient), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "FAIL plain in float64: grad.param.dt_bias[" in result.output
    assert json.loads((tmp_path / "parity.json").read_text())["passed"] is False


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
    assert run_command(monkeypatch, FaultyRunner(DoubledGradient), *options).exit_code == 1
    assert not trained
    result = run_command(monkeypatch, TwinRunner("chunked"), *options)
    assert result.exit_code == 0, result.output
    assert trained == [(tmp_path, 1, 7)]
    assert "not better than: persistence; in a folder" in result.output
    assert json.loads((tmp_path / "parity.json").read_text())["forecaster"]["test"]["rmse"] == 0.25


def test_the_command_refuses_wrong_usage(tmp_path):
    assert CliRunner().invoke(command.parity, ["--seed", "-1"]).exit_code == 2
    file = tmp_path / "file"
    file.touch()
    assert CliRunner().invoke(command.parity, ["--out", str(file)]).exit_code == 2


def test_a_candidate_that_raises_fails_the_case():
    class Raises(TwinRunner):
        def run(self, case, dtype):
            raise RuntimeError("no kernel")

    results = compare_case(Raises(), TwinRunner(), CASES["one_token"], ["float64"])
    assert [str(result) for result in results] == [
        "one_token in float64: every tensor: RuntimeError: no kernel"
    ]
    assert dataclasses.asdict(results[0])["problem"] == "RuntimeError: no kernel"
