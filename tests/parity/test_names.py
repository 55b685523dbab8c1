"""Other names and layouts for parameters."""

import numpy as np
import pytest

from mamba2_bridge.exceptions import StateDictError
from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.names import TRANSFORMERS, NameMap, Renamed, Rule
from mamba2_bridge.testing import assert_parity

NAMES = NameMap(
    [
        Rule("layers.*.in.weight", ("blocks.*.q", "blocks.*.k"), sizes=(1, 2), transpose=True),
        Rule("head.weight", ("out.w",)),
    ]
)
OURS = {
    "layers.0.in.weight": np.arange(6.0).reshape(3, 2),
    "layers.10.in.weight": -np.arange(6.0).reshape(3, 2),
    "head.weight": np.ones(2),
    "scale": np.zeros(1),
}


def test_parameters_are_renamed_split_and_transposed_and_come_back():
    theirs = NAMES.translate(OURS)
    assert list(theirs) == ["blocks.0.q", "blocks.0.k", "blocks.10.q", "blocks.10.k", "out.w", "scale"]
    assert np.array_equal(theirs["blocks.0.q"], [[0.0], [1.0]])
    assert np.array_equal(theirs["blocks.0.k"], [[2.0, 4.0], [3.0, 5.0]])
    back = NAMES.back(theirs, list(OURS))
    assert list(back) == list(OURS)
    for name, value in OURS.items():
        assert np.array_equal(back[name], value), name


def test_a_part_that_is_missing_leaves_the_whole_out_and_unknown_names_stay():
    theirs = NAMES.translate(OURS)
    del theirs["blocks.0.k"]
    back = NAMES.back({**theirs, "other": np.ones(1)}, list(OURS))
    assert set(back) == {"blocks.0.q", "layers.10.in.weight", "head.weight", "scale", "other"}


def test_transformers_calls_the_embedding_otherwise():
    ours = {"backbone.embedding.weight": np.ones((2, 2)), "backbone.norm_f.weight": np.ones(2)}
    assert list(TRANSFORMERS.translate(ours)) == ["backbone.embeddings.weight", "backbone.norm_f.weight"]


@pytest.mark.torch
def test_a_model_with_other_names_is_compared_under_ours():
    torch = pytest.importorskip("torch")
    from mamba2_bridge.parity.in_torch.module import ModuleRunner
    from mamba2_bridge.parity.in_torch.twin import TwinRunner
    from mamba2_bridge.parity.mamba2_cases import noise_case
    from mamba2_bridge.torch.reference import Mamba2

    class Split(torch.nn.Module):
        """A mixer whose input projection is two, kept transposed."""

        def __init__(self, config):
            super().__init__()
            self.mixer = Mamba2(**config)
            weight = self.mixer.in_proj.weight
            self.first = torch.nn.Parameter(torch.empty(weight.shape[1], 10))
            self.rest = torch.nn.Parameter(torch.empty(weight.shape[1], weight.shape[0] - 10))
            del self.mixer.in_proj.weight

        def forward(self, u):
            self.mixer.in_proj.weight = torch.cat([self.first, self.rest], dim=1).T
            out, state = self.mixer(u, return_state=True)
            return {"out": out, "final.conv_state": state.conv_state, "final.ssm_state": state.ssm_state}

    case = noise_case(steps=2)
    rows = case.params["in_proj.weight"].shape[0]
    rules = [Rule("in_proj.weight", ("first", "rest"), sizes=(10, rows - 10), transpose=True)]
    rules += [Rule(name, (f"mixer.{name}",)) for name in case.params if name != "in_proj.weight"]
    candidate = Renamed(ModuleRunner(lambda case: Split(case.config), name="split"), NameMap(rules))
    report = assert_parity(TwinRunner(), candidate, case)
    assert {"grad.param.in_proj.weight", "exp_avg.in_proj.weight"} <= {
        result.tensor for result in report.results
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("a", "b"), "a: theirs must be a tuple of names, got 'b'"),
        (lambda: Rule("a", ("b", "c")), "a: 0 sizes for 2 names"),
        (lambda: Rule("a", ("b", "c"), (1,)), "a: 1 sizes for 2 names"),
        (lambda: Rule("a", ("b", "c"), (1, 1)).split(np.ones((3, 2))), r"a of shape \(3, 2\) can't be split"),
        (
            lambda: NameMap([Rule("out.w", ("head.weight",))]).translate({"head.weight": np.ones(2)}),
            "no rule fits a parameter: rules are for out.w, the parameters head.weight; ours is what a case",
        ),
    ],
)
def test_a_map_that_does_not_fit_is_named(make, message):
    with pytest.raises(StateDictError, match=message):
        make()


@pytest.mark.torch
def test_weight_decay_leaves_alone_what_the_case_says_whatever_it_is_called_there():
    torch = pytest.importorskip("torch")
    from mamba2_bridge.parity.in_torch.module import ModuleRunner

    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.c = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x @ self.w.T + self.c

    rng = np.random.default_rng(0)
    params = {"weight": rng.standard_normal((2, 3)), "bias": rng.standard_normal(2)}
    batch = Batch({"x": rng.standard_normal((4, 3))}, target=rng.standard_normal((4, 2)))
    case = Case("linear", params, [batch], optimizer=AdamW(1e-2, weight_decay=0.5))
    plain = ModuleRunner(lambda case: torch.nn.Linear(3, 2), lambda model, inputs: model(inputs["x"]))
    names = NameMap([Rule("weight", ("w",)), Rule("bias", ("c",))])
    assert_parity(plain, Renamed(ModuleRunner(lambda case: Other()), names), case)
