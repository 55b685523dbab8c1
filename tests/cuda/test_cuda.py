"""What the CPU is held to, on a GPU: parity with the twin, training, parameters. By ``pytest -m cuda``."""

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(mb.backend() == "cpu", reason="needs the CUDA build, a driver and a GPU"),
]

DEVICE = "cuda:0"


def test_every_case_equals_the_twin():
    pytest.importorskip("torch")
    from mamba2_bridge.parity.check import check
    from mamba2_bridge.parity.in_torch.twin import TwinRunner
    from mamba2_bridge.parity.native import NativeRunner

    check(NativeRunner(device=DEVICE), TwinRunner()).raise_for_failures()


def forecaster(device, seed=0):
    mixer = mb.Mamba2Config(d_model=16, d_state=16, headdim=8)
    config = mb.Mamba2ForecasterConfig(mixer=mixer, n_layer=2, d_input=1, d_output=1)
    return mb.Mamba2Forecaster(config, device=device, seed=seed)


def losses(model, steps):
    optimizer = mb.optim.AdamW(model, lr=1e-2)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x = rng.uniform(-1, 1, (32, 8, 1)).astype(np.float32)
        loss = model.forward(x).mse_loss(x[:, 0])
        optimizer.step(loss.backward())
        yield loss.item()


def test_training_learns_as_on_the_cpu():
    on_gpu, on_cpu = (list(losses(forecaster(device), 300)) for device in (DEVICE, "cpu"))
    assert_close("loss", np.float32(on_gpu[0]), np.float32(on_cpu[0]), "loss", "float32")
    assert min(on_gpu[-20:]) < min(on_gpu[:20]) / 10


def test_parameters_states_and_files_come_and_go(tmp_path):
    model = forecaster(DEVICE)
    x = np.ones((2, 5, 1), np.float32)
    model.save_pretrained(tmp_path / "model")
    same = mb.Mamba2Forecaster.from_pretrained(tmp_path / "model", device="cpu")
    assert_close("out", model(x), same(x), "value", "float32")
    model.varmap["head.bias"] = np.full(1, 3.0, np.float32)
    assert model.varmap["head.bias"].tolist() == [3.0]
    assert model(np.zeros((0, 5, 1), np.float32)).shape == (0, 1)
