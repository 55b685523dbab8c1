"""Other Python threads go on while a call computes."""

import itertools
import threading
import time

import pytest

import mamba2_bridge as mb
from native_models import noise

CFG = mb.Mamba2Config(d_model=64, headdim=16, d_state=32)


def training_step():
    model = mb.Mamba2(mb.Mamba2Config(d_model=512), "float64")
    u = noise(1, 2, 512)
    grads = model.forward(u).backward(u)
    optimizer = mb.optim.AdamW(model)
    return lambda: [optimizer.step(grads) for _ in range(4)]


def calls():
    model, u = mb.Mamba2(CFG, "float32"), noise(2, 20_000, 64, dtype="float32")
    out = model.forward(u)
    return {
        "forward": lambda: model.forward(u),
        "recording": lambda: model.record(u),
        "inference": lambda: model(u),
        "backward": lambda: out.backward(u),
    }


MAKE = {
    **{name: lambda name=name: calls()[name] for name in ("forward", "recording", "inference", "backward")},
    "optimizer": training_step,
    "construction": lambda: lambda: mb.Mamba2(mb.Mamba2Config(d_model=2048)),
}


@pytest.mark.parametrize("call", MAKE)
def test_another_thread_makes_progress(call):
    work = MAKE[call]()
    ticks, stop = [time.monotonic()], threading.Event()

    def tick():
        while not stop.is_set():
            time.sleep(0.001)
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.monotonic()
    work()
    ended = time.monotonic()
    stop.set()
    thread.join()
    during = [started, *(t for t in ticks if started < t < ended), ended]
    longest = max(later - earlier for earlier, later in itertools.pairwise(during))
    assert ended - started > 0.05, "too short a call to tell"
    assert longest < 0.5 * (ended - started), f"no tick for {longest:.3f} of {ended - started:.3f} seconds"
