"""fp32 where it is hardest: large steps, large chunks, and a norm that divides by what nearly cancels."""

import numpy as np
import pytest
import torch

import mamba2_bridge as mb
from assertions import assert_results_close
from mamba2_bridge.torch.reference import Mamba2
from native_models import by_part
from twin import losses_in_fp32, run_mixer

pytestmark = pytest.mark.torch

CONFIG = {"d_model": 16, "d_state": 16, "headdim": 8, "ngroups": 2}


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
    got = {
        "out": out.y,
        **by_part("final", out.state),
        "grad.u": grads.input,
        **{f"grad.param.{name}": grad for name, grad in grads.items()},
    }
    params = model.state_dict()
    twin = Mamba2(**CONFIG, dtype=torch.float64)
    twin.load_state_dict({name: torch.from_numpy(value).double() for name, value in params.items()})
    want = run_mixer(twin, u, dy)
    losses = losses_in_fp32({**CONFIG, "chunk_size": chunk_size}, params, u, dy)
    assert_results_close(f"seed {seed}", got, want, "float32", losses)
