"""What the CPU is held to, on a GPU: golden cases, parity, training, steps, memory. By ``pytest -m cuda``."""

import threading

import numpy as np
import pytest

import golden_cases
import mamba2_bridge as mb
from assertions import assert_close, assert_results_close
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.tolerances import quantity_of
from native_models import DTYPES, by_part, config, noise, python

pytestmark = pytest.mark.cuda

MIB = 2**20
OPTIMIZERS = {
    "AdamW": lambda model: mb.optim.AdamW(model, lr=1e-2),
    "SGD with momentum": lambda model: mb.optim.SGD(model, lr=1e-2, momentum=0.9),
}


def mixer(device, dtype):
    return mb.Mamba2(config(ngroups=2), dtype=dtype, device=device)


def forecaster(device, dtype="float32"):
    cfg = mb.Mamba2ForecasterConfig(mixer=config(), n_layer=2, d_input=1, d_output=1)
    return mb.Mamba2Forecaster(cfg, dtype=dtype, device=device)


def windows(dtype):
    """Endless windows of numbers; their first one is what a forecaster has to remember."""
    rng = np.random.default_rng(0)
    while True:
        x = rng.uniform(-1, 1, (32, 8, 1)).astype(dtype)
        yield x, x[:, 0]


def train(model, optimizer, steps):
    """Losses of so many steps."""
    losses = []
    for _, (x, target) in zip(range(steps), windows(model.dtype), strict=False):
        loss = model.forward(x).mse_loss(target)
        grads = loss.backward()
        mb.optim.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", golden_cases.blocks(), ids=str)
def test_golden_case(case, dtype, device):
    got = golden_cases.results(NativeRunner(device=device), case, dtype)
    assert_results_close(case.name, got, case.expected, dtype, case.own_loss)


@pytest.mark.torch
@pytest.mark.slow
def test_every_case_equals_the_twin(device):
    pytest.importorskip("torch")
    from mamba2_bridge.parity.check import check
    from mamba2_bridge.parity.in_torch.twin import TwinRunner

    check(NativeRunner(device=device), TwinRunner()).raise_for_failures()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_training_steps_are_those_of_the_cpu(optimizer, device):
    models = {place: forecaster(place, "float64") for place in (device, "cpu")}
    losses = {place: train(model, OPTIMIZERS[optimizer](model), 10) for place, model in models.items()}
    assert_close("losses", np.array(losses[device]), np.array(losses["cpu"]), "optimizer step", "float64")
    for name, value in models["cpu"].varmap.items():
        assert_close(name, models[device].varmap[name], value, "optimizer step", "float64")


def test_training_learns(device):
    model = forecaster(device)
    losses = train(model, mb.optim.AdamW(model, lr=1e-2), 300)
    assert min(losses[-20:]) < min(losses[:20]) / 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_and_continuations_give_what_one_pass_gives(dtype, device):
    model = mixer(device, dtype)
    u = noise(2, 40, 8, dtype=dtype)
    whole = model.forward(u)
    want = {"out": whole.y, **by_part("final", whole.state)}

    first = model.forward(u[:, :17])
    second = model.forward(u[:, 17:], first.state)
    continued = {"out": np.concatenate([first.y, second.y], 1), **by_part("final", second.state)}

    state, tokens = model.init_state(2), []
    for t in range(u.shape[1]):
        y, state = model.step(u[:, t], state)
        tokens.append(y)
    stepped = {"out": np.stack(tokens, 1), **by_part("final", state)}

    for got in (continued, stepped):
        for name, value in want.items():
            assert_close(name, got[name], value, quantity_of(name), dtype)


def test_parameters_and_files_come_and_go(tmp_path, device):
    model = forecaster(device)
    x = noise(2, 5, 1, dtype="float32")
    model.save_pretrained(tmp_path / "model")
    for place in (device, "cpu"):
        same = mb.Mamba2Forecaster.from_pretrained(tmp_path / "model", device=place)
        assert_close(place, same(x), model(x), "value", "float32")
    model.varmap["head.bias"] = np.full(1, 3.0, np.float32)
    assert model.varmap["head.bias"].tolist() == [3.0]
    assert model(np.zeros((0, 5, 1), np.float32)).shape == (0, 1)


def test_refused_calls_leave_the_device_usable(device):
    model = mixer(device, "float32")
    u = noise(2, 9, 8, dtype="float32")
    want = model(u)
    for wrong, error in ((u[0], mb.ShapeError), (u.astype("float64"), mb.DTypeError)):
        with pytest.raises(error):
            model(wrong)
    with pytest.raises(mb.DeviceError):
        mb.Mamba2(config(), device="cuda:7")
    assert_close("out", model(u), want, "value", "float32")


def test_threads_take_turns(device):
    model = mixer(device, "float64")
    inputs = [noise(2, 33, 8, seed=seed) for seed in range(4)]
    want = [model(u) for u in inputs]
    got = [[] for _ in inputs]

    def work(i):
        got[i].extend(model(inputs[i]) for _ in range(20))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, value in enumerate(want):
        assert len(got[i]) == 20
        for y in got[i]:
            assert_close(f"thread {i}", y, value, "value", "float64")


GROWTH = """
import subprocess, sys
import mamba2_bridge as mb
from native_models import config, noise

device = sys.argv[1]
model = mb.Mamba2(config(d_model=64, headdim=16, d_state=16), dtype="float32", device=device)
optimizer = mb.optim.AdamW(model)
u = noise(4, 512, 64, dtype="float32")

def steps(count):
    for _ in range(count):
        optimizer.step(model.forward(u).mse_loss(u).backward())

def in_use():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    if device == "cpu":
        return resident, 0
    ask = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return resident, int(subprocess.check_output(ask)) << 20

steps(20)
before = in_use()
steps(200)
print(*(now - then for now, then in zip(in_use(), before)))
"""


@pytest.mark.slow
def test_memory_does_not_grow(device):
    process, gpu = map(int, python(GROWTH, device, timeout=300).split())
    assert process <= 16 * MIB, f"the process grew by {process / MIB:.0f} MiB"
    assert gpu <= 64 * MIB, f"what is used of the GPU's memory grew by {gpu / MIB:.0f} MiB"
