"""Ten steps of each optimizer, with each side's own gradients, equal torch's in every parameter."""

import numpy as np
import pytest
import torch

import mamba2_bridge as mb
from assertions import assert_close
from mamba2_bridge.torch.reference import Mamba2
from native_models import SMALL, mixer, noise

pytestmark = pytest.mark.torch

STEPS = 10
OPTIMIZERS = {
    "AdamW": ("AdamW", {"lr": 1e-2, "betas": (0.8, 0.99), "eps": 1e-7, "weight_decay": 0.1}),
    "AdamW without decay": ("AdamW", {"lr": 1e-3, "weight_decay": 0.0}),
    "SGD": ("SGD", {"lr": 1e-2}),
    "SGD with momentum": ("SGD", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
    "SGD with Nesterov's momentum": ("SGD", {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
}
DECAYS = ("in_proj.weight", "conv1d.weight", "out_proj.weight")


@pytest.fixture
def pair():
    """A native mixer and its twin on the same parameters."""
    native = mixer(ngroups=2, bias=True)
    twin = Mamba2(**SMALL, ngroups=2, bias=True, dtype=torch.float64)
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in native.varmap.items()})
    return native, twin


def torch_optimizer(twin, kind, options):
    groups = [
        {"params": [p for name, p in twin.named_parameters() if name in DECAYS]},
        {"params": [p for name, p in twin.named_parameters() if name not in DECAYS], "weight_decay": 0.0},
    ]
    return getattr(torch.optim, kind)(groups, **options)


def assert_same_parameters(native, twin, step):
    for name, parameter in twin.named_parameters():
        where = f"step {step}: {name}"
        assert_close(where, native.varmap[name], parameter.detach().numpy(), "optimizer step", "float64")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_equal_torchs(pair, name):
    native, twin = pair
    kind, options = OPTIMIZERS[name]
    ours, theirs = getattr(mb.optim, kind)(native, **options), torch_optimizer(twin, kind, options)
    for step in range(STEPS):
        u, target = noise(2, 20, 8, seed=step), noise(2, 20, 8, seed=step + 100)
        loss = native.forward(u).mse_loss(target)
        ours.step(loss.backward())

        theirs.zero_grad()
        expected = torch.nn.functional.mse_loss(twin(torch.from_numpy(u)), torch.from_numpy(target))
        expected.backward()
        theirs.step()

        assert_close(
            f"step {step}: loss", np.array(loss.item()), expected.detach().numpy(), "loss", "float64"
        )
        assert_same_parameters(native, twin, step)


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_clipping_equals_torchs(pair, max_norm):
    native, twin = pair
    u, dy = noise(2, 20, 8), noise(2, 20, 8, seed=1)
    grads = native.forward(u).backward(dy)
    norm = mb.optim.clip_grad_norm(grads, max_norm)
    twin(torch.from_numpy(u)).backward(torch.from_numpy(dy))
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
    assert_close("norm", np.array(norm), expected.detach().numpy(), "grad", "float64")
    for name, parameter in twin.named_parameters():
        assert_close(name, grads[name], parameter.grad.numpy(), "grad", "float64")
