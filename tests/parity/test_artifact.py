"""Artifacts: what is recorded is what was computed, and comparing recordings is comparing the models."""

import os
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from mamba2_bridge.exceptions import CheckpointError, ConfigError, DTypeError
from mamba2_bridge.parity.artifact import compare_artifacts, compare_with_artifact, read, record
from mamba2_bridge.parity.cases import Batch
from mamba2_bridge.parity.compare import compare
from mamba2_bridge.parity.drawn import drawn_case
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.mamba2_cases import by_token, forecaster_case, mixer_cases, noise_case
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.outcome import held, outcome_of
from mamba2_bridge.parity.tolerances import DEFAULT, Policy, Tolerance
from mamba2_bridge.testing.faults import FAULTS, FaultyTwin
from native_models import python

pytestmark = pytest.mark.torch
MIXERS = {case.name: case for case in mixer_cases()}
MIXER = MIXERS["gated_mlp"]
CASES = [MIXER, by_token(MIXER), forecaster_case(steps=2), MIXERS["no_token"]]


def assert_same_arrays(got, want):
    assert list(got) == list(want)
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        assert np.array_equal(got[name], want[name], equal_nan=True), name
        assert got[name].flags.writeable, name


def plain(results):
    """Every field of every result; texts, since NaN equals itself in them."""
    return [str(asdict(result)) for result in results]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_read_is_what_was_computed(case, dtype, tmp_path):
    runner = TwinRunner()
    record(runner, case, tmp_path / "new" / "artifact", dtype=dtype, floors=False, seed=7)
    artifact = read(tmp_path / "new" / "artifact")
    artifact.verify()
    want, got = held(outcome_of(runner, case, dtype)), artifact.outcome
    assert_same_arrays(got.forward, want.forward)
    assert_same_arrays(got.backward, want.backward)
    assert len(got.steps) == len(want.steps)
    for of_got, of_want in zip(got.steps, want.steps, strict=True):
        assert_same_arrays(of_got, of_want)
    for name in ("name", "dtype", "intermediates", "own_losses"):
        assert getattr(got, name) == getattr(want, name)
    assert list(got.stages) == list(want.stages)
    again = artifact.case
    assert (again.name, again.config, again.optimizer, again.by_token) == (
        case.name, dict(case.config), case.optimizer, case.by_token,
    )  # fmt: skip
    assert_same_arrays(again.params, case.params)
    assert len(again.batches) == len(case.batches)
    for of_got, of_want in zip(again.batches, case.batches, strict=True):
        assert_same_arrays(of_got.inputs, of_want.inputs)
        assert_same_arrays(of_got.upstream, of_want.upstream)
        assert np.array_equal(of_got.target, of_want.target) if of_want.target is not None else True
    assert artifact.manifest.seed == 7
    assert artifact.manifest.versions["torch"] == torch.__version__.partition("+")[0]
    assert sorted(os.listdir(tmp_path / "new")) == ["artifact"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comparing_artifacts_is_comparing_the_models(case, tmp_path):
    record(TwinRunner(), case, tmp_path / "a")
    record(TwinRunner("chunked"), case, tmp_path / "b", floors=False)
    live = compare(TwinRunner(), TwinRunner("chunked"), case, dtypes=["float64"], isolated=False)
    report = compare_artifacts(read(tmp_path / "a"), read(tmp_path / "b"))
    assert plain(report.results) == plain(live.results)
    assert report.passed
    assert report.candidate == "twin (chunked) in float64, recorded"
    assert report.reference == "twin (recurrence) in float64, recorded"
    assert str(tmp_path / "b") in report.notes["remarks"][1]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "candidate", [TwinRunner("chunked"), NativeRunner("composed"), NativeRunner("fused")]
)
def test_comparing_with_an_artifact_is_comparing_with_the_model(case, candidate, tmp_path):
    record(TwinRunner(), case, tmp_path / "a")
    report = compare_with_artifact(read(tmp_path / "a"), candidate)
    live = compare(TwinRunner(), candidate, case)
    if (
        candidate.name == "native (fused)"
    ):  # fed floors are recorded for all intermediates, of which it has few
        names = [result.tensor for result in live.results]
        assert [result.tensor for result in report.results] == names
    else:
        assert plain(report.results) == plain(live.results)
    report.raise_for_failures()


@cache
def reference_folder(folder, name):
    fault = next(fault for fault in FAULTS if fault.name == name)
    path = folder / name.replace("/", "_").replace(" ", "_")
    record(TwinRunner(), fault.case(), path)
    return read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


FIRST_OF_CASE = {}
for one in FAULTS:
    FIRST_OF_CASE.setdefault(str(one.case().config) + one.case().name, one.name)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.stage != "parameters"], ids=str)
def test_a_planted_fault_is_found_from_artifacts_alone(fault, folder, tmp_path):
    case = fault.case()
    reference = reference_folder(folder, FIRST_OF_CASE[str(case.config) + case.name])
    record(FaultyTwin(fault), case, tmp_path / "faulty", floors=False)
    report = compare_artifacts(reference, read(tmp_path / "faulty"))
    assert [result.stage for result in report.divergences] == [fault.stage], report.failures[:3]
    first = compare_artifacts(reference, read(tmp_path / "faulty"), stop_at_first=True)
    assert plain(first.failures) == plain(report.failures[:1])


def test_a_model_that_does_not_take_the_parameters_is_not_recorded(tmp_path):
    fault = next(fault for fault in FAULTS if fault.stage == "parameters")
    with pytest.raises(RuntimeError, match="parameters missing"):
        record(FaultyTwin(fault), fault.case(), tmp_path / "faulty")
    assert not os.listdir(tmp_path)


def test_fp32_is_held_against_fp32_and_says_so(tmp_path):
    case = forecaster_case(steps=1)
    record(TwinRunner(), case, tmp_path / "a", dtype="float32")
    record(TwinRunner(), case, tmp_path / "b", dtype="float32")
    a, b = read(tmp_path / "a"), read(tmp_path / "b")
    report = compare_artifacts(a, b)
    assert report.passed
    assert {(result.dtype, result.phase) for result in report.results} == {
        ("float32", "forward"), ("float32", "backward"),
    }  # fmt: skip
    assert report.notes["remarks"][2:] == [
        "float32 against float32: the reference's own roundings count as the candidate's",
        "the reference has no noise floors: no bound is widened by them",
        "optimizer steps are not compared in float32: no tolerance is for them",
    ]
    loose = Policy([Tolerance("optimizer step", "float32", 1e-3, 0.0, "for this test")]).before(DEFAULT)
    stepped = compare_artifacts(a, b, policy=loose)
    assert stepped.passed
    assert {result.phase for result in stepped.results} == {"forward", "backward", "step"}
    live = compare_with_artifact(a, TwinRunner())
    assert {result.dtype for result in live.results} == {"float32"}
    assert live.passed
    record(TwinRunner(), case, tmp_path / "b", floors=False)
    with pytest.raises(ConfigError, match="recorded in float32: a candidate in float64 needs a reference in"):
        compare_artifacts(a, read(tmp_path / "b"))
    with pytest.raises(ConfigError, match="recorded in float32"):
        compare_with_artifact(a, TwinRunner(), dtypes=["float64"])
    assert compare_artifacts(read(tmp_path / "b"), a).passed


def with_input(case, change):
    batch = case.batch
    return replace(case, batches=[replace(batch, inputs={**batch.inputs, "u": change(batch.inputs["u"])})])


def shorter(case):
    upstream = {**case.batch.upstream, "out": case.batch.upstream["out"][:, 1:]}
    return replace(case, batches=[Batch({**case.batch.inputs, "u": case.batch.inputs["u"][:, 1:]}, upstream)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda case: with_input(case, lambda u: u * 2), "batch 0, input u is float64 of shape"),
        (shorter, r"input u is .* shape \(2, 32, 12\) .* \(2, 33, 12\)"),
        (
            lambda case: replace(case, config={**case.config, "norm_eps": 1e-3}),
            "config norm_eps is 0.001, must",
        ),
        (lambda case: replace(case, config={**case.config, "dt_limit": (0.0, 1.0)}), "config dt_limit is"),
        (
            lambda case: replace(case, params={**case.params, "D": case.params["D"] + 1}),
            "parameter D is float64 of shape",
        ),
        (
            lambda case: replace(
                case, batches=[Batch(case.batch.inputs, {"out": case.batch.upstream["out"]})]
            ),
            "batch 0, upstream final.conv_state is missing",
        ),
        (by_token, "by_token is True, must be False"),
    ],
)
def test_other_cases_are_not_compared(change, message, tmp_path):
    record(TwinRunner(), MIXER, tmp_path / "a", floors=False)
    record(TwinRunner(), change(MIXER), tmp_path / "b", floors=False)
    with pytest.raises(ConfigError, match=message):
        compare_artifacts(read(tmp_path / "a"), read(tmp_path / "b"))


def test_runs_of_other_lengths_are_not_compared(tmp_path):
    for steps in (1, 2):
        record(TwinRunner(), noise_case(steps=steps), tmp_path / str(steps), floors=False)
    with pytest.raises(ConfigError, match="2 batches, must be 1"):
        compare_artifacts(read(tmp_path / "1"), read(tmp_path / "2"))


def test_one_case_in_two_precisions_is_one_case(tmp_path):
    record(TwinRunner(), MIXER, tmp_path / "a", floors=False)
    record(TwinRunner(), replace(MIXER.astype("float32"), name="the same"), tmp_path / "b", floors=False)
    assert read(tmp_path / "b").case.params["D"].dtype == np.float32
    assert compare_artifacts(read(tmp_path / "a"), read(tmp_path / "b")).passed


def test_floors_are_recorded_as_they_are_measured_live(tmp_path):
    record(TwinRunner(), MIXER, tmp_path / "a")
    manifest = read(tmp_path / "a").manifest
    assert manifest.own_losses.keys() == manifest.fed_losses.keys()
    assert any(loss > 0 for loss in manifest.own_losses.values())
    assert sorted(os.listdir(tmp_path / "a")) == ["backward", "batch0", "forward", "manifest.json", "params"]


class Odd(TwinRunner):
    """Gives what no artifact holds, or names that no file system takes."""

    def forward(self, batch, feed=None):
        made = super().forward(batch, feed)
        return {**made, self.extra[0]: self.extra[1]}

    def stages(self, names):
        return ()


def test_any_name_and_layout_can_be_recorded(tmp_path):
    runner = Odd()
    array = np.arange(24, dtype=">f8").reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    runner.extra = ("../../a/b\\c:" + "é" * 300, array)
    record(runner, MIXER, tmp_path / "a", floors=False)
    got = read(tmp_path / "a").outcome.forward[runner.extra[0]]
    assert got.dtype == np.dtype("<f8")
    assert np.array_equal(got, array)


def test_what_no_artifact_holds_is_named(tmp_path):
    runner = Odd()
    runner.extra = ("phases", np.zeros(2, np.complex128))
    with pytest.raises(DTypeError, match="phases has dtype complex128, an artifact holds float64, float32"):
        record(runner, MIXER, tmp_path / "a", floors=False)
    strange = replace(MIXER, config={**MIXER.config, "dt_limit": np.array([0.0, 1.0])})
    with pytest.raises(ConfigError, match=r"the case gated_mlp can't be written as JSON: .*ndarray"):
        record(TwinRunner(), strange, tmp_path / "a", floors=False)
    assert not os.listdir(tmp_path)


def test_reading_and_comparing_need_no_model(tmp_path):
    record(TwinRunner(), MIXER, tmp_path / "a")
    record(TwinRunner("chunked"), MIXER, tmp_path / "b", floors=False)
    said = python(
        """
import sys
for name in ("torch", "transformers", "pandas", "matplotlib"):
    sys.modules[name] = None
from mamba2_bridge.parity.artifact import compare_artifacts, read
print(compare_artifacts(read(sys.argv[1]), read(sys.argv[2])).passed)
""",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    )
    assert said == "True\n"


MEMORY = """
import sys
from benchmarks.memory import Growth
from mamba2_bridge.parity.artifact import compare_artifacts, read, record
from mamba2_bridge.parity.cases import Batch, Case
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.runner import Runner
import numpy as np

MIB = 2**20

def made(seed):
    return lambda: np.random.default_rng(seed).standard_normal(MIB // 8 * 2)  # 2 MiB

class Wide(Runner):
    name = "wide"
    def load(self, case, dtype): pass
    def forward(self, batch, feed=None): return LazyArrays({f"layer{i}": made(i) for i in range(40)})
    def backward(self): return LazyArrays({f"param.w{i}": made(-i % 100) for i in range(40)})

BATCH = Batch({"x": np.zeros(1)}, {"layer39": np.ones(1)})
case = Case("wide", LazyArrays({f"w{i}": made(i) for i in range(20)}), [BATCH])
record(Wide(), Case("small", {}, [BATCH]), sys.argv[1] + "/warm", floors=False)
with Growth() as recording:
    record(Wide(), case, sys.argv[1] + "/a", floors=False)
record(Wide(), case, sys.argv[1] + "/b", floors=False)
with Growth() as comparing:
    assert compare_artifacts(read(sys.argv[1] + "/a"), read(sys.argv[1] + "/b")).passed
print(recording.bytes / (2 * MIB), comparing.bytes / (2 * MIB))
"""


@pytest.mark.slow
def test_memory_is_that_of_some_tensors_whatever_their_number(tmp_path):
    """200 MiB in 100 tensors: neither recording nor comparing holds more than a few of them."""
    recording, comparing = map(float, python(MEMORY, str(tmp_path)).split())
    assert recording < 6
    assert comparing < 16  # differences are measured with temporary arrays


def test_drawn_parameters_are_the_models(tmp_path):
    config = {**CASES[2].config}
    case = drawn_case(config, seed=3, steps=1)
    record(NativeRunner(), case, tmp_path / "a", floors=False)
    assert_same_arrays(read(tmp_path / "a").case.params, case.params)
    assert not np.array_equal(case.params["head.bias"], drawn_case(config, seed=4).params["head.bias"])


def test_a_damaged_reference_is_no_fault_of_the_candidate(tmp_path):
    record(TwinRunner(), MIXER, tmp_path / "a", floors=False)
    artifact = read(tmp_path / "a")
    entry = next(entry for entry in artifact.manifest.forward if entry.name == "conv")
    file = tmp_path / "a" / entry.file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="conv should have SHA-256"):
        compare_with_artifact(artifact, TwinRunner())
