"""Ctrl-C: KeyboardInterrupt within a second, and everything usable afterwards."""

import pytest

from native_models import python

PREPARE = """
import os, signal, threading, time
import numpy as np
import mamba2_bridge as mb
from native_models import assert_same, noise, run

cfg = mb.Mamba2Config(d_model=64, headdim=16, d_state=32)
model = mb.Mamba2(cfg, "float32")
u = noise(4, 1500, 64, dtype="float32")
small = u[:, :20]
before = run(model, small)

def seconds(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started

while seconds(lambda: model.forward(u)) < 0.8:  # long enough to be interrupted, on any machine
    u = np.concatenate([u, u], axis=1)

def interrupted(work, after):
    \"\"\"How long after Ctrl-C the work ended, in seconds.\"\"\"
    pressed = []
    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(after, press)
    timer.start()
    try:
        work()
    except KeyboardInterrupt:
        return time.monotonic() - pressed[0]
    raise AssertionError(f"the work was done before {after} s: nothing was interrupted")
"""


@pytest.mark.parametrize(
    "work", ["model.forward(u)", "model.record(u)", "model(u)", "loop()", "wait()", "make()"]
)
def test_forward_is_interrupted(work):
    code = f"""{PREPARE}
def loop():
    state = model.init_state(4)
    while True:
        _, state = model.step(small[:, 0], state)
def wait():
    started = threading.Event()
    def compute():
        started.set()
        model.forward(u)
    threading.Thread(target=compute).start()
    started.wait()
    while True:
        model.varmap.update(model.state_dict())
def make():
    while True:
        mb.Mamba2(mb.Mamba2Config(d_model=1024))
delay = interrupted(lambda: {work}, 0.3)
assert delay < 1, delay
assert_same(run(model, small), before)
"""
    python(code, timeout=120)


@pytest.mark.parametrize("work", ["out.backward(u)", "loss.backward()"])
def test_backward_is_interrupted(work):
    code = f"""{PREPARE}
out = model.forward(u)
loss = out.mse_loss(u)
delay = interrupted(lambda: {work}, 0.3)
assert delay < 1, delay
try:
    {work}
except mb.GraphError as error:
    print(error)
assert_same(run(model, small), before)
"""
    assert "run forward again" in python(code, timeout=120)


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_the_computation_itself_stops(part):
    """What was interrupted takes no more processor time, though its caller has long gone on."""
    code = f"""
import os, signal, threading, time
import mamba2_bridge as mb
from native_models import noise

mixer = mb.Mamba2Config(d_model=64, headdim=8, d_state=16)
model = mb.Mamba2Forecaster(mb.Mamba2ForecasterConfig(mixer=mixer, n_layer=8, d_input=3, d_output=2))
x, dy = noise(2, 8000, 3, dtype="float32"), noise(2, 2, dtype="float32")
def start():
    out = model.forward(x)
    return {{"forward": lambda: model.forward(x), "backward": lambda: out.backward(dy)}}["{part}"]
def cost(work):
    before, started = time.process_time(), time.monotonic()
    try:
        work()
        wall = time.monotonic() - started
    except KeyboardInterrupt:
        wall = None
        time.sleep(2 * whole_wall + 0.2)
    return time.process_time() - before, wall
cost(start())
whole, whole_wall = cost(start())
work = start()
threading.Timer(0.1 * whole_wall, os.kill, (os.getpid(), signal.SIGINT)).start()
stopped, wall = cost(work)
print(wall, stopped / whole)
"""
    interrupted, share = python(code, timeout=120).split()
    assert interrupted == "None"
    assert float(share) < 0.7


def test_an_interrupted_training_loop_leaves_a_sound_model(tmp_path):
    """Wherever Ctrl-C falls, parameters and moments are those of a whole number of steps."""
    code = f"""{PREPARE}
import sys
from native_models import mixer

def train(steps):
    model = mixer()
    optimizer = mb.optim.AdamW(model, lr=0.01)
    v = noise(2, 20, 8)
    try:
        while steps:
            optimizer.step(model.forward(v).mse_loss(v).backward())
            steps -= 1
    except KeyboardInterrupt:
        pass
    return model, optimizer.state_dict()["step"]

for after in (0.05, 0.11, 0.17):
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    model, steps = train(-1)
    timer.join()
    assert_same(model.state_dict(), train(steps)[0].state_dict())
"""
    python(code, timeout=120)


def test_a_handler_of_ones_own_is_called():
    code = f"""{PREPARE}
class Stop(Exception):
    pass
def stop(*_):
    raise Stop
signal.signal(signal.SIGUSR1, stop)
timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
timer.start()
started = time.monotonic()
try:
    model.forward(u)
except Stop:
    print(time.monotonic() - started < 1.3)
"""
    assert python(code, timeout=120).split() == ["True"]


def test_a_signal_without_consequence_interrupts_nothing():
    code = f"""{PREPARE}
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
assert_same(run(model, u[:, :300]), run(model, u[:, :300]))
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) > 3)
"""
    assert python(code, timeout=120).split() == ["True"]
