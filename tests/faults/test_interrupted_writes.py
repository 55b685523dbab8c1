"""A kill or a full disk in the middle of a write leaves the old file, whole."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import mamba2_bridge as mb
from native_models import assert_same, child_environment, mixer, python

MODEL = "mb.Mamba2(mb.Mamba2Config(d_model=96, headdim=16), seed={seed})"
WRITE_FOREVER = f"""
import sys
import mamba2_bridge as mb
models = [{MODEL.format(seed=0)}, {MODEL.format(seed=1)}]
print("ready", flush=True)
while True:
    for model in models:
        SAVE
"""
SAVES = {"file": "model.varmap.save(sys.argv[1])", "folder": "model.save_pretrained(sys.argv[1])"}


@pytest.mark.parametrize("kind", SAVES)
def test_a_kill_leaves_a_whole_model(kind, tmp_path):
    models = [mb.Mamba2(mb.Mamba2Config(d_model=96, headdim=16), seed=seed) for seed in (0, 1)]
    target = tmp_path / "model"
    known = [model.state_dict() for model in models]
    models[0].varmap.save(target) if kind == "file" else models[0].save_pretrained(target)
    code = WRITE_FOREVER.replace("SAVE", SAVES[kind])
    chance = random.Random(0)
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, env=child_environment()
        )
        with child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.2))
            child.kill()
        assert child.returncode == -signal.SIGKILL
        if kind == "file":
            models[1].varmap.load(target)
        else:
            models[1] = mb.Mamba2.from_pretrained(target)
        found = models[1].state_dict()
        assert_same(found, known[0] if found["A_log"].tobytes() == known[0]["A_log"].tobytes() else known[1])


LIMITED = """
import errno, resource, signal, sys
import mamba2_bridge as mb
from native_models import mixer

model = mixer(seed=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    SAVE
except OSError as error:
    print(errno.errorcode[error.errno], error.filename)
"""


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("limit", [0, 1, 3000])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(limit, kind, tmp_path):
    target = tmp_path / "model"
    old = mixer("float32")
    old.varmap.save(target) if kind == "file" else old.save_pretrained(target)
    message = python(LIMITED.replace("SAVE", SAVES[kind]), str(target), str(limit))
    assert message.startswith("EFBIG ")
    assert os.listdir(tmp_path) == ["model"]
    again = mixer("float32", seed=2)
    if kind == "file":
        again.varmap.load(target)
    else:
        again = mb.Mamba2.from_pretrained(target)
    assert_same(again.state_dict(), old.state_dict())


@pytest.mark.parametrize("kind", SAVES)
def test_a_full_disk_where_nothing_was_leaves_nothing(kind, tmp_path):
    assert python(LIMITED.replace("SAVE", SAVES[kind]), str(tmp_path / "model"), "3000").startswith("EFBIG ")
    assert os.listdir(tmp_path) == []
