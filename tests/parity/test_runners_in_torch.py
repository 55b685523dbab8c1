"""Runners of torch models that are not the twin: any module, and transformers' mixer."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.in_torch.module import ModuleRunner
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.mamba2_cases import by_token, draw_parameters, exact, mixer_case, mixer_cases
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.testing import assert_parity

pytestmark = pytest.mark.torch


class Net(nn.Module):
    """Two layers and a norm; `broken` names what is wrong with it."""

    def __init__(self, broken=None):
        super().__init__()
        self.first, self.act, self.norm = nn.Linear(3, 8), nn.SiLU(), nn.LayerNorm(8)
        self.second, self.scale = nn.Linear(8, 2), nn.Parameter(torch.ones(2))
        self.broken = broken

    def forward(self, x):
        h = self.act(self.first(x))
        if self.broken == "act":
            h = 0.5 * h
        h = self.norm(h)
        if self.broken == "cut":
            h = h.detach()
        return self.second(self.act(h)) * self.scale


def net_case():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    params = {name: exact(value.detach().double().numpy()) for name, value in Net().named_parameters()}
    batches = [
        Batch({"x": exact(rng.standard_normal((4, 3)))}, target=exact(rng.standard_normal((4, 2))))
        for _ in range(3)
    ]
    return Case("net", params, batches, optimizer=AdamW(1e-2))


def test_a_module_is_looked_into_by_its_parts():
    report = assert_parity(ModuleRunner(lambda case: Net()), ModuleRunner(lambda case: Net()), net_case())
    tensors = [result.tensor for result in report.results if result.dtype == "float64"]
    assert tensors[:7] == ["first", "act", "norm", "act#2", "second", "out", "loss"]
    assert {"grad.x", "grad.act#2", "grad.param.scale", "exp_avg_sq.first.weight"} <= set(tensors)
    assert {result.mode for result in report.results} == {"accumulated", "isolated"}


class Sequence(nn.Sequential):
    """Layers around an activation that may work in place, the first with a weight that may be frozen."""

    def __init__(self, inplace=False, frozen=False):
        super().__init__(nn.Linear(3, 8), nn.ReLU(inplace=inplace), nn.Linear(8, 2))
        self[0].weight.requires_grad_(not frozen)

    def forward(self, x):
        return super().forward(x)


def sequence_case(**more):
    torch.manual_seed(0)
    params = {name: exact(value.detach().double().numpy()) for name, value in Sequence().named_parameters()}
    return replace(net_case(), name="sequence", params=params, **more)


def test_a_part_that_works_in_place_leaves_what_was_seen_before_it():
    plain, in_place = (ModuleRunner(lambda case, i=inplace: Sequence(i)) for inplace in (False, True))
    assert_parity(plain, in_place, sequence_case())
    assert_parity(in_place, plain, sequence_case())


def test_a_frozen_parameter_is_named_by_the_case():
    frozen = [ModuleRunner(lambda case: Sequence(frozen=True)) for _ in range(2)]
    assert_parity(*frozen, sequence_case(untrained=("0.weight",)))
    report = compare(*frozen, sequence_case(), dtypes=["float64"], isolated=False)
    assert [str(result) for result in report.failures] == [
        "sequence in float64: grad.param.0.weight: missing, in the reference too"
    ]
    assert not compare(ModuleRunner(lambda case: Sequence()), frozen[0], sequence_case()).passed


class Clashing(nn.Module):
    """Parts whose names are those of the input, the output and the loss."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.x, self.loss, self.out = nn.Identity(), nn.Linear(3, 2), nn.Identity()
        self.factor = factor

    def forward(self, x):
        x = self.x(x)
        return torch.tanh(self.out(self.loss(x))) + (self.factor - 1) * (x - x.detach())[:, :2]


@pytest.mark.parametrize("how", ["target", "upstream"])
def test_parts_may_have_the_names_of_inputs_and_outputs(how):
    case = net_case()
    start = {"target": case.batch.target} if how == "target" else {"upstream": {"out": case.batch.target}}
    params = {name: value.detach().double().numpy() for name, value in Clashing().named_parameters()}
    case = Case("clashing", params, [Batch(case.batch.inputs, **start)])
    assert_parity(ModuleRunner(lambda case: Clashing()), ModuleRunner(lambda case: Clashing()), case)
    report = compare(
        ModuleRunner(lambda case: Clashing()), ModuleRunner(lambda case: Clashing(7.0)), case, isolated=False
    )
    assert {result.tensor for result in report.failures} == {"grad.x"}


class Pair(NamedTuple):
    y: torch.Tensor
    state: dict


class Nested(nn.Module):
    def __init__(self, wrong=None, kind=tuple):
        super().__init__()
        self.lstm, self.wrong, self.kind = nn.LSTM(3, 4, batch_first=True), wrong, kind

    def forward(self, x):
        y, (h, c) = self.lstm(x[None])
        parts = {"y": y, "h": h, "c": c}
        if self.wrong:
            parts[self.wrong] = -9 * parts[self.wrong]
        y, h, c = parts.values()
        return Pair(y, {"h": [h], "c": [c]}) if self.kind is Pair else (y, (h, c))


@pytest.mark.parametrize(
    ("kind", "names"), [(tuple, ["out", "out.1.0", "out.1.1"]), (Pair, ["y", "state.h.0", "state.c.0"])]
)
def test_nested_outputs_are_compared(kind, names):
    case = net_case()
    params = {name: value.detach().double().numpy() for name, value in Nested().named_parameters()}
    upstream = {names[0]: np.ones((1, 4, 4))}
    case = Case("nested", params, [Batch(case.batch.inputs, upstream)])
    report = assert_parity(*(ModuleRunner(lambda case: Nested(kind=kind)) for _ in range(2)), case)
    assert [result.tensor for result in report.results[:3]] == names
    wrong = compare(
        ModuleRunner(lambda case: Nested(kind=kind)), ModuleRunner(lambda case: Nested("c", kind)), case
    )
    assert {result.tensor for result in wrong.failures} == {names[2]}


def test_a_model_cut_from_its_loss_fails_though_the_reference_is_cut_as_well():
    class Cut(Sequence):
        def forward(self, x):
            return super().forward(x).detach()

    report = compare(*(ModuleRunner(lambda case: Cut()) for _ in range(2)), sequence_case(), isolated=False)
    missing = {
        result.tensor for result in report.failures if result.problem == "missing, in the reference too"
    }
    assert {f"grad.param.{name}" for name in sequence_case().params} <= missing


def test_what_a_model_keeps_beside_parameters_is_compared():
    class Normed(nn.Module):
        def __init__(self, momentum):
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(3, momentum=momentum), nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(self.norm(x))

    params = {name: value.detach().double().numpy() for name, value in Normed(0.1).named_parameters()}
    case = replace(net_case(), name="normed", params=params)
    healthy, other = (ModuleRunner(lambda case, m=momentum: Normed(m)) for momentum in (0.1, 0.9))
    assert_parity(healthy, ModuleRunner(lambda case: Normed(0.1)), case)
    failures = compare(healthy, other, case).failures
    assert {result.tensor for result in failures} == {"buffer.norm.running_mean", "buffer.norm.running_var"}


def test_a_module_does_not_go_token_by_token():
    with pytest.raises(ConfigError, match="net, by token: a module of whatever kind can't go token by token"):
        compare(*[ModuleRunner(lambda case: Net())] * 2, by_token(net_case().once))


@pytest.mark.parametrize(
    ("broken", "tensor", "stage"), [("act", "norm", "norm"), ("cut", "grad.norm", "act#2")]
)
def test_a_bug_in_a_module_is_found(broken, tensor, stage):
    report = compare(
        ModuleRunner(lambda case: Net()),
        ModuleRunner(lambda case: Net(broken)),
        net_case(),
        dtypes=["float64"],
    )
    (first,) = report.divergences
    assert (first.tensor, first.stage, first.mode) == (tensor, stage, "isolated")


def test_parameters_that_do_not_fit_are_named():
    case = net_case()
    del case.params["scale"]
    report = compare(
        ModuleRunner(lambda case: Net()), ModuleRunner(lambda case: Net()), net_case(), dtypes=["float64"]
    )
    assert report.passed
    runner = ModuleRunner(lambda case: Net())
    with pytest.raises(RuntimeError, match=r"parameters missing: \['scale'\], unexpected: \[\]"):
        runner.load(case, "float64")
    case.params["scale"] = np.ones(3)
    with pytest.raises(RuntimeError, match=r"scale has shape \(3,\), the model's \(2,\)"):
        runner.load(case, "float64")


BASE = {"d_model": 16, "d_state": 8, "expand": 2, "headdim": 8, "ngroups": 1, "d_conv": 4, "chunk_size": 16}
CONFIGS = {
    "plain": {},
    "groups": {"ngroups": 2, "norm_eps": 1e-3},
    "limits and biases": {"dt_limit": (0.1, 0.6), "bias": True, "conv_bias": False, "d_conv": 3},
}


def transformers_case(changes):
    config = {"norm_eps": 1e-5, **BASE, **changes}
    rng = np.random.default_rng(1)
    u, dy = (exact(rng.standard_normal((2, 33, 16))) for _ in range(2))
    return mixer_case("mixer", config, draw_parameters(rng, config), u, dy)


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("reference", [TwinRunner(), NativeRunner("composed")], ids=["twin", "native"])
def test_transformers_is_the_same_function_but_for_its_fp32(reference, changes):
    pytest.importorskip("transformers")
    from mamba2_bridge.parity.in_torch.huggingface import POLICY, HuggingFaceRunner

    case = transformers_case(changes)
    assert_parity(reference, HuggingFaceRunner(), case, policy=POLICY)
    # By the project's own bounds its scan is off in fp64, by what fp32 loses, and nothing before it is.
    report = compare(reference, HuggingFaceRunner(), case, dtypes=["float64"])
    (first,) = report.divergences
    assert (first.tensor, first.stage) == ("scan", "dt to scan")
    assert 0.1 < first.noise < 10
    before = [result for result in report.results if result.tensor.startswith("in_proj.")]
    assert len(before) == 6
    assert all(result.passed for result in before)


def test_what_transformers_cannot_do_is_refused():
    pytest.importorskip("transformers")
    from mamba2_bridge.parity.in_torch.huggingface import HuggingFaceRunner

    for case in mixer_cases():
        if case.name in ("D_per_channel", "gated_mlp", "norm_before_gate", "states", "groups_one_norm"):
            with pytest.raises(ValueError, match="transformers' mixer can't do"):
                HuggingFaceRunner().load(case, "float64")
    with pytest.raises(ValueError, match="by_token"):
        HuggingFaceRunner().load(by_token(transformers_case({})), "float64")
