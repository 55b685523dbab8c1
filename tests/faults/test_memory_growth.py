"""Memory stays where it is, however long training or inference runs."""

import pytest

from native_models import python

PREPARE = """
import mamba2_bridge as mb
from native_models import forecaster, mixer, noise

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def growth(step, warm_up, steps):
    for _ in range(warm_up):
        step()
    before = resident()
    for _ in range(steps):
        step()
    return resident() - before
"""

LOOPS = {
    "training": (
        """
model = forecaster("float32", n_layer=1)
optimizer = mb.optim.AdamW(model)
x, target = noise(2, 6, 3, dtype="float32"), noise(2, 2, dtype="float32")
def step():
    loss = model.forward(x).mse_loss(target)
    loss.item()
    grads = loss.backward()
    mb.optim.clip_grad_norm(grads, 1.0)
    optimizer.step(grads)
""",
        500,
        1500,
    ),
    "inference": (
        """
model = mixer("float32")
u_t = noise(1, 8, dtype="float32")
state = model.init_state(1)
def step():
    global state
    _, state = model.step(u_t, state)
""",
        1000,
        10_000,
    ),
    "graphs that are never used": (
        """
model, u = mixer("float32"), noise(4, 200, 8, dtype="float32")
def step():
    model.forward(u, model.init_state(4)).mse_loss(u)
""",
        500,
        1500,
    ),
    "recordings, with and without a backward": (
        """
from native_models import config
model = mb.Mamba2(config(), dtype="float32", kernels="composed")
u = noise(2, 50, 8, dtype="float32")
def step():
    out = model.record(u, model.init_state(2), feed={"out_proj": (u, u)})
    out.intermediates["scan"]
    out.mse_loss(u)
    model.record(u).backward(u).intermediates["scan"]
""",
        300,
        1000,
    ),
    "truncated backpropagation": (
        """
model, u = mixer("float32"), noise(2, 50, 8, dtype="float32")
state = model.init_state(2)
def step():
    global state
    out = model.forward(u, state)
    state = out.state
    out.backward(u, state)
""",
        500,
        1500,
    ),
    "refused calls": (
        """
model, u = mixer("float32"), noise(2, 50, 8, dtype="float32")
def step():
    out = model.forward(u)
    for wrong in (u[0], u.astype("float64")):
        try:
            out.backward(wrong)
        except (mb.ShapeError, mb.DTypeError):
            pass
""",
        500,
        1500,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_memory_does_not_grow(loop):
    code, warm_up, steps = LOOPS[loop]
    grown = int(python(f"{PREPARE}{code}\nprint(growth(step, {warm_up}, {steps}))", timeout=300))
    assert grown < 4 << 20, f"{grown / steps:.0f} bytes a step"
