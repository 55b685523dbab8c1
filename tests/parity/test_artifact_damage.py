"""Of a damaged artifact it is said which file, what was expected and what came; writes are whole or none."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("safetensors")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mamba2_bridge.exceptions import CheckpointError
from mamba2_bridge.parity.artifact import compare_artifacts, read, record
from mamba2_bridge.parity.cases import AdamW, Batch, Case
from mamba2_bridge.parity.runner import Runner
from mamba2_bridge.parity.stages import Stage
from native_models import child_environment


class Line(Runner):
    """y = w·x + b, without any framework."""

    name = "line"

    def __init__(self, factor=1.0):
        self.factor = factor

    def load(self, case, dtype):
        self.params = {name: value.astype(dtype) for name, value in case.params.items()}

    def forward(self, batch, feed=None):
        y = self.factor * self.params["w"] * batch.inputs["x"] + self.params["b"]
        return {"out": y, "loss": np.asarray(np.mean((y - batch.target) ** 2), np.float64)}

    def stages(self, names):
        return [Stage("line", ("out",), ("x",), ("w", "b"))]

    def backward(self):
        return {"param.w": 2 * self.params["w"], "param.b": self.params["b"]}

    def step(self):
        self.params = {name: value / 2 for name, value in self.params.items()}
        return {f"param.{name}": value for name, value in self.params.items()}


def batch(seed):
    x, target = np.random.default_rng(seed).standard_normal((2, 5))
    return Batch({"x": x}, target=target)


CASE = Case(
    "line", {"w": np.float64([2.0]), "b": np.float64([0.5])}, [batch(0), batch(1)], {"a": 1}, AdamW(lr=0.1)
)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    path = tmp_path_factory.mktemp("healthy") / "artifact"
    record(Line(), CASE, path)
    return path


@pytest.fixture
def artifact(healthy, tmp_path):
    return shutil.copytree(healthy, tmp_path / "artifact")


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())


def sealed(content):
    """The manifest with the checksum that belongs to it: only a check of what it says can refuse it."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def rewrite(folder, change):
    content = manifest_of(folder)
    change(content)
    (folder / "manifest.json").write_text(json.dumps(sealed(content)))


def looked_at(folder):
    read(folder).verify()


def test_it_is_healthy_and_needs_no_framework(artifact):
    looked_at(artifact)
    rewrite(artifact, lambda content: None)
    looked_at(artifact)
    assert compare_artifacts(read(artifact), read(artifact)).passed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "manifest.json: no JSON"),
        ("\x00\xff", "manifest.json: no JSON"),
        ("[" * 100_000, "manifest.json: no JSON"),
        ("[]", "manifest.json: must be a JSON object, got list"),
        ("{}", "format must be 'mamba2_bridge parity artifact', got None"),
        ('{"format": "mamba2_bridge", "model_class": "Mamba2"}', "format must be .*, got 'mamba2_bridge'"),
        ('{"format": "mamba2_bridge parity artifact"}', "manifest.json: version is missing"),
        (
            '{"format": "mamba2_bridge parity artifact", "version": "1"}',
            "version must be an integer, got '1'",
        ),
        (
            '{"format": "mamba2_bridge parity artifact", "version": 2}',
            "version must be 1, got 2: a newer release",
        ),
        (
            '{"format": "mamba2_bridge parity artifact", "version": 0}',
            "version must be 1, got 0: there never",
        ),
        ('{"format": "mamba2_bridge parity artifact", "version": 1}', "manifest.json: sha256 is missing"),
    ],
)
def test_another_json_is_refused(text, message, artifact):
    (artifact / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=message):
        read(artifact)


def first(content):
    return content["forward"][0]


OTHER = "0" * 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("case"), "manifest.json: case is missing"),
        (lambda c: c.update(case=[]), r"case: must be an object, got \[\]"),
        (lambda c: c.update(runner=3), "runner must be a text, got 3"),
        (lambda c: c.update(seed=1.5), "seed must be an integer, got 1.5"),
        (lambda c: c.update(seed=True), "seed must be an integer, got True"),
        (lambda c: c.update(dtype="bfloat16"), "dtype must be one of float32, float64, got 'bfloat16'"),
        (lambda c: c.update(versions={"numpy": 2}), "versions must be an object of texts"),
        (lambda c: c.update(forward={}), "forward must be a list, got {}"),
        (lambda c: c.update(forward=[1]), r"forward\[0\]: must be an object, got 1"),
        (lambda c: c.update(steps=[[]]), "steps must be 2, one a batch, got 1"),
        (lambda c: c.update(intermediates=["conv"]), "intermediates must be among forward, got conv"),
        (lambda c: c.update(intermediates="out"), "intermediates must be a list, got 'out'"),
        (
            lambda c: c.update(own_losses={"out": -1}),
            "own_losses: out must be a finite number, at least 0, got -1",
        ),
        (lambda c: c.update(own_losses={"out": float("inf")}), "own_losses: out must be a finite number"),
        (lambda c: c.update(own_losses={"out": "0"}), "own_losses: out must be a finite number"),
        (lambda c: c["case"].update(batches=[]), "batches must hold a batch, got none"),
        (lambda c: c["case"].update(by_token=0), "case: by_token must be true or false, got 0"),
        (lambda c: c["case"].update(config=None), "case: config must be an object, got None"),
        (lambda c: c["case"]["optimizer"].update(lr="1"), "optimizer: lr must be a finite number, got '1'"),
        (
            lambda c: c["case"]["optimizer"].update(betas=[0.9]),
            r"betas must be 2 finite numbers, got \[0.9\]",
        ),
        (lambda c: c["own_losses"].update(out=10**400), "must be a finite number, at least 0, got 1000"),
        (
            lambda c: c["case"]["config"].update(a={"__float__": "abc"}),
            "config can't be read: could not convert",
        ),
        (lambda c: c["stages"][0].update(makes=[1]), r"stages\[0\]: makes must be a list of texts"),
        (lambda c: first(c).update(name="loss"), "forward: loss is there twice"),
        (lambda c: first(c).update(shape=[-1]), r"shape must be a list of sizes, got \[-1\]"),
        (lambda c: first(c).update(shape=[True]), "shape must be a list of sizes"),
        (lambda c: first(c).update(dtype="complex128"), "dtype must be one of float64"),
        (lambda c: first(c).update(sha256="x"), "sha256 must be 64 hexadecimal digits, got 'x'"),
        (lambda c: first(c).update(file="../secret.safetensors"), "file must be a path inside the folder"),
        (lambda c: first(c).update(file="a/../../b.safetensors"), "file must be a path inside the folder"),
        (lambda c: first(c).update(file="/etc/x.safetensors"), "file must be a path inside the folder"),
        (lambda c: first(c).update(file="..\\x.safetensors"), "file must be a path inside the folder"),
        (lambda c: first(c).update(file="C:x.safetensors"), "file must be a path inside the folder"),
        (lambda c: first(c).update(file="manifest.json"), "that ends in .safetensors, got 'manifest.json'"),
        (
            lambda c: first(c).update(file=c["forward"][1]["file"]),
            "0001-loss.safetensors is there for out and loss",
        ),
        (
            lambda c: first(c).update(file="forward/other.safetensors"),
            r"other.safetensors: is missing; it should hold out, float64 of shape \(5,\)",
        ),
        (
            lambda c: first(c).update(shape=[5000]),
            "is cut off; out, float64 of shape .5000,. takes 40000 bytes",
        ),
        (
            lambda c: first(c).update(shape=[4]),
            r"should hold out, float64 of shape \(4,\), got float64 of .*\(5,\)",
        ),
        (lambda c: first(c).update(dtype="int64"), "should hold out, int64 of .* got float64 of shape"),
        (lambda c: first(c).update(sha256=OTHER), f"out should have SHA-256 {OTHER}, got [0-9a-f]{{64}}"),
    ],
)
def test_a_wrong_field_is_named(change, message, artifact):
    rewrite(artifact, change)
    with pytest.raises(CheckpointError, match=message):
        looked_at(artifact)


def test_a_manifest_that_was_changed_is_refused(artifact):
    path = artifact / "manifest.json"
    path.write_text(path.read_text().replace('"lr": 0.1', '"lr": 0.2'))
    with pytest.raises(CheckpointError, match=r"what it says should have SHA-256 [0-9a-f]{64}, got"):
        read(artifact)


def test_what_is_not_there_is_named(artifact, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no artifact .*nothing"):
        read(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty: no artifact, it has no manifest.json"):
        read(tmp_path / "empty")
    with pytest.raises(CheckpointError, match=r"no artifact, it has no manifest.json"):
        read(artifact / "manifest.json")
    found = read(artifact)
    (artifact / "forward" / "0000-out.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"0000-out.safetensors: is missing; it should hold out, float64"
    ):
        found.outcome.forward["out"]
    with pytest.raises(CheckpointError, match=r"0000-out.safetensors: is missing"):
        read(artifact)


def test_a_link_out_of_the_folder_is_refused(artifact, tmp_path):
    file = artifact / "forward" / "0000-out.safetensors"
    file.rename(tmp_path / "elsewhere.safetensors")
    file.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(CheckpointError, match=r"leads out of the artifact's folder, to .*elsewhere"):
        read(artifact)


def test_a_file_of_other_tensors_is_refused(artifact):
    file = artifact / "forward" / "0000-out.safetensors"
    save_file({"a": np.zeros(3), "b": np.zeros(3)}, file)
    with pytest.raises(CheckpointError, match=r"must hold 'tensor' alone, for out, got .*'a', 'b'"):
        looked_at(artifact)


@pytest.mark.parametrize("left", [0, 1, 7, 8, 40])
def test_a_truncated_file_is_refused(left, artifact):
    file = artifact / "forward" / "0000-out.safetensors"
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1 if left == 40 else left)
    with pytest.raises(CheckpointError, match=r"0000-out.safetensors: (is cut off|should hold out, float64)"):
        looked_at(artifact)


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_flipped_bit_goes_unseen(data, artifact):
    """Spaces of a header apart, which mean nothing."""
    files = sorted(path for path in artifact.rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files))
    healthy = file.read_bytes()
    position = data.draw(st.integers(0, len(healthy) - 1))
    damaged = bytearray(healthy)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    if healthy[position : position + 1].isspace() and damaged[position : position + 1].isspace():
        return
    file.write_bytes(damaged)
    try:
        with pytest.raises(CheckpointError, match=file.name):
            looked_at(artifact)
    finally:
        file.write_bytes(healthy)


@pytest.mark.parametrize("there", ["a file", "a folder", "a file in an artifact"])
def test_what_is_no_artifact_is_not_replaced(there, tmp_path):
    target = tmp_path / "mine"
    if there == "a file":
        target.write_text("precious")
    elif there == "a folder":
        target.mkdir()
        (target / "precious").touch()
    else:
        record(Line(), CASE, target)
        (target / "report.html").touch()
    with pytest.raises(CheckpointError, match="mine is there and holds other things than an artifact"):
        record(Line(), CASE, target)
    kept = "report.html" if there == "a file in an artifact" else "precious"
    assert target.read_text() == "precious" if there == "a file" else kept in os.listdir(target)


def test_an_empty_folder_and_an_artifact_are_replaced(tmp_path):
    target, link = tmp_path / "mine", tmp_path / "link"
    target.mkdir()
    link.symlink_to(target)
    for factor in (1.0, 2.0):
        record(Line(factor), CASE, link)
        assert read(target).outcome.forward["out"][0] == Line.forward(loaded(factor), CASE.batch)["out"][0]
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "mine"]


def loaded(factor):
    line = Line(factor)
    line.load(CASE, "float64")
    return line


class Interrupted(Line):
    """Stops in the middle: after one of two optimizer steps."""

    def step(self):
        if hasattr(self, "stepped"):
            raise KeyboardInterrupt
        self.stepped = True
        return super().step()


def test_an_interrupted_record_leaves_the_old_artifact_or_none(artifact, tmp_path):
    for target in (artifact, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            record(Interrupted(), CASE, target)
    looked_at(artifact)
    assert os.listdir(tmp_path) == ["artifact"]


WRITE_FOREVER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_artifact_damage import CASE, Line, record
record(Line(1.0), CASE, sys.argv[2])
print("ready", flush=True)
while True:
    for factor in (2.0, 1.0):
        record(Line(factor), CASE, sys.argv[2], floors=False)
"""


def test_a_kill_leaves_a_whole_artifact(tmp_path):
    target, chance = tmp_path / "artifact", random.Random(0)
    for _ in range(3):
        command = [sys.executable, "-c", WRITE_FOREVER, os.path.dirname(__file__), str(target)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment()) as child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.3))
            child.kill()
        assert child.returncode == -signal.SIGKILL
        looked_at(target)
