"""fp32 where it is hardest: large steps, large chunks, and a norm that divides by what nearly cancels."""

import numpy as np
import pytest
import torch

import mamba2_bridge as mb
from assertions import assert_results_close
from mamba2_bridge.parity.tolerances import relative_error
from mamba2_bridge.torch.reference import Mamba2

pytestmark = pytest.mark.torch

CONFIG = {"d_model": 16, "d_state": 16, "headdim": 8, "ngroups": 2}


def twin_results(params, u, dy, dtype):
    twin = Mamba2(**CONFIG, dtype=dtype)
    twin.load_state_dict({name: torch.from_numpy(value).to(dtype) for name, value in params.items()})
    u = torch.from_numpy(u).to(dtype).requires_grad_()
    y = twin(u)
    y.backward(torch.from_numpy(dy).to(dtype))
    grads = {f"grad.{name}": parameter.grad.numpy() for name, parameter in twin.named_parameters()}
    return {"out": y.detach().numpy(), "grad.u": u.grad.numpy(), **grads}


@pytest.mark.parametrize("chunk_size", [16, 64, 256])
@pytest.mark.parametrize("seed", [0, 1])
def test_large_steps_stay_within_the_bounds(seed, chunk_size):
    model = mb.Mamba2(mb.Mamba2Config(**CONFIG, chunk_size=chunk_size), "float32", seed=seed)
    model.varmap["dt_bias"] = np.full(4, 2, "float32")
    model.varmap["A_log"] = np.log([1, 4, 8, 16]).astype("float32")
    rng = np.random.default_rng(seed)
    u, dy = (rng.standard_normal((1, 512, 16)).astype("float32") for _ in range(2))
    out = model.forward(u)
    grads = out.backward(dy)
    got = {"out": out.y, "grad.u": grads.input, **{f"grad.{name}": grad for name, grad in grads.items()}}

    want = twin_results(model.state_dict(), u, dy, torch.float64)
    narrow = twin_results(model.state_dict(), u, dy, torch.float32)
    own_loss = {name: relative_error(narrow[name], value) for name, value in want.items()}
    assert_results_close(f"seed {seed}", got, want, "float32", own_loss)
