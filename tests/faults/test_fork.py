"""Forked children compute, or say why they can't; they never hang."""

import pytest

from native_models import python

PREPARE = """
import multiprocessing, os, signal, sys, threading, time, warnings
import numpy as np
import mamba2_bridge as mb
from native_models import forecaster, mixer, noise, run

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: what is tried here
model, u = mixer(), noise(2, 20, 8)

def in_child(work):
    \"\"\"What the work gives in a forked child.\"\"\"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that hangs is killed
        try:
            print(work(), flush=True)
            os._exit(0)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(3)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 3), f"the child ended with {status}"
"""

WORKS = {
    "inference": "model(u).tobytes() == want",
    "training": "run(model, u)['out'].tobytes() == run(mixer(), u)['out'].tobytes()",
    "a model of its own": "mixer()(u).tobytes() == want",
    "an output from before": "len(out.backward(u)) == 8",
    "a loss from before": "len(loss.backward()) == 8",
    "an optimizer from before": "optimizer.step(model.forward(u).backward(u)) is None",
    "more threads": "(mb.set_num_threads(3), model(u).tobytes() == want)[1]",
    "a grandchild": "in_child(lambda: model(u).tobytes() == want) or True",
}


@pytest.mark.parametrize("work", WORKS)
def test_a_child_computes(work):
    code = f"""{PREPARE}
want = model(u).tobytes()
out, loss, optimizer = model.forward(u), model.forward(u).mse_loss(u), mb.optim.AdamW(model)
in_child(lambda: {WORKS[work]})
assert model(u).tobytes() == want
"""
    assert set(python(code).split()) == {"True"}


def test_a_child_computes_on_arrays_large_enough_to_be_split():
    """Candle has a thread pool of its own for those; its threads would be gone."""
    code = f"""{PREPARE}
large, long = mb.Mamba2(mb.Mamba2Config(d_model=64, headdim=16)), noise(1, 3000, 64, dtype="float32")
want = large(long).tobytes()
in_child(lambda: large(long).tobytes() == want)
"""
    assert python(code).split() == ["True"]


def test_a_child_computes_where_the_parent_has_not():
    assert python(f"{PREPARE}\nin_child(lambda: bool(np.isfinite(model(u)).all()))").split() == ["True"]


def test_a_child_of_a_parent_that_computes_works_or_says_why_not():
    """The lock of a model may be held for ever in the child by a thread that isn't there."""
    code = f"""{PREPARE}
large = mb.Mamba2(mb.Mamba2Config(d_model=64, headdim=16), "float64")
long = noise(4, 2000, 64)
threads = [
    threading.Thread(target=lambda: large.forward(long)),
    threading.Thread(target=lambda: [model.varmap.update(model.state_dict()) for _ in range(200)]),
]
for thread in threads:
    thread.start()
time.sleep(0.1)
for _ in range(3):
    in_child(lambda: large(long[:1, :3]).shape)
    in_child(lambda: model.varmap.update(model.state_dict()))
    in_child(lambda: bool(np.isfinite(mixer()(u)).all()))
for thread in threads:
    thread.join()
"""
    lines = python(code, timeout=120).splitlines()
    assert len(lines) == 9
    assert lines[2::3] == ["True"] * 3
    for line in lines:
        assert line in ("(1, 3, 64)", "None", "True") or line.startswith(
            "RuntimeError the model was in use by another thread when this process was forked"
        )


def test_a_pool_of_forked_processes():
    code = f"""{PREPARE}
want = model(u).tobytes()
def work(seed):
    return mixer(seed=seed)(u).tobytes() + model(u).tobytes()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        got = pool.map_async(work, range(4)).get(30)
    assert got == [mixer(seed=seed)(u).tobytes() + want for seed in range(4)]
    print(True)
"""
    assert python(code).split() == ["True"]


def test_spawned_processes_get_models_by_pickle(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        """
import multiprocessing
from native_models import mixer, noise

def work(model):
    return model(noise(2, 5, 8)).tobytes()

if __name__ == "__main__":
    model = mixer(seed=3)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map_async(work, [model]).get(60) == [work(model)]
    print(True)
"""
    )
    assert python(
        "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(script)
    ).split() == ["True"]
