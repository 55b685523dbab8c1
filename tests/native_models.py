"""Small native models, their inputs and all they give, for the tests of the public contract."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mamba2_bridge as mb

Array = NDArray[Any]

DTYPES = ("float64", "float32")
PYTHON_FOLDER = Path(mb.__file__).parents[1]

SMALL = {"d_model": 8, "d_state": 4, "headdim": 4, "chunk_size": 16}
"""A mixer of four heads; its scan takes several chunks from 17 tokens on."""

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "d_conv=1": {"d_conv": 1},
    "d_conv=2": {"d_conv": 2},
    "d_conv=6": {"d_conv": 6},
    "expand=3": {"expand": 3},
    "headdim=1": {"headdim": 1},
    "headdim=16": {"headdim": 16},
    "d_state=1": {"d_state": 1},
    "groups": {"ngroups": 2},
    "groups, one norm": {"ngroups": 2, "norm_groups": 1},
    "norm in groups": {"norm_groups": 8},
    "D per channel": {"D_has_hdim": True},
    "no norm": {"rmsnorm": False},
    "norm before gate": {"norm_before_gate": True},
    "gated MLP": {"d_ssm": 8},
    "dt_limit": {"dt_limit": (0.01, 0.05)},
    "dt_limit above": {"dt_limit": (0.0, 0.03)},
    "bias": {"bias": True},
    "no conv_bias": {"conv_bias": False},
    "norm_eps": {"norm_eps": 0.1},
    "chunk_size=1": {"chunk_size": 1},
    "all": {
        "d_conv": 3,
        "d_ssm": 12,
        "headdim": 2,
        "ngroups": 3,
        "norm_groups": 6,
        "D_has_hdim": True,
        "norm_before_gate": True,
        "dt_limit": (0.005, 0.08),
        "bias": True,
    },
}
"""Every option of a mixer, each in a configuration of its own and once all together."""


def config(**changes: Any) -> mb.Mamba2Config:
    """The small configuration with some fields changed."""
    return mb.Mamba2Config(**{**SMALL, **changes})


def mixer(dtype: str = "float64", seed: int = 0, **changes: Any) -> mb.Mamba2:
    """A small mixer."""
    return mb.Mamba2(config(**changes), dtype=dtype, seed=seed)


def forecaster(
    dtype: str = "float64", seed: int = 0, n_layer: int = 2, **changes: Any
) -> mb.Mamba2Forecaster:
    """A small forecaster of three features to two."""
    cfg = mb.Mamba2ForecasterConfig(mixer=config(**changes), n_layer=n_layer, d_input=3, d_output=2)
    return mb.Mamba2Forecaster(cfg, dtype=dtype, seed=seed)


def noise(*shape: int, dtype: str = "float64", seed: int = 0) -> Array:
    """Normal numbers, the same in both dtypes up to rounding."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def scatter(model: mb.Model[Any], seed: int = 1) -> None:
    """Move every parameter off its initial value: D, norm weights and the like start as constants."""
    model.varmap.update(
        {
            name: value + 0.2 * noise(*value.shape, dtype=model.dtype, seed=seed)
            for name, value in model.varmap.items()
        }
    )


def noisy_state(model: mb.Mamba2, batch: int, seed: int = 2) -> mb.Mamba2State:
    """A state of random numbers that fits the model."""
    zeros = model.init_state(batch)
    return mb.Mamba2State(
        noise(*zeros.conv_state.shape, dtype=model.dtype, seed=seed),
        noise(*zeros.ssm_state.shape, dtype=model.dtype, seed=seed + 1),
    )


def by_part(prefix: str, state: mb.Mamba2State) -> dict[str, Array]:
    """The arrays of a state, named as the parity package names results."""
    return {f"{prefix}.conv_state": state.conv_state, f"{prefix}.ssm_state": state.ssm_state}


def run(model: mb.Mamba2, u: Array, *, initial: bool = True, seed: int = 3) -> dict[str, Array]:
    """Forward and backward with random upstream gradients: every output, state and gradient by name."""
    batch = u.shape[0]
    state = noisy_state(model, batch) if initial else None
    out = model.forward(u, state)
    grads = out.backward(noise(*u.shape, dtype=model.dtype, seed=seed), noisy_state(model, batch, seed + 1))
    results = {"out": out.y, **by_part("final", out.state), "grad.u": grads.input}
    if grads.state is not None:
        results |= by_part("grad.init", grads.state)
    return results | {f"grad.param.{name}": grad for name, grad in grads.items()}


def assert_same(got: dict[str, Array], want: dict[str, Array]) -> None:
    """Assert that two sets of arrays have the same names in the same order, and the same bits."""
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].dtype == value.dtype, name
        assert got[name].shape == value.shape, name
        differ = got[name].tobytes() != value.tobytes()
        assert not differ, f"{name}: {np.count_nonzero(got[name] != value)} of {value.size} elements differ"


def python(code: str, *arguments: str, timeout: float = 60, **environment: str) -> str:
    """Run code in a fresh interpreter, which must succeed, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=child_environment(**environment),
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment, in which children find the same package and these helpers."""
    folders = [str(PYTHON_FOLDER), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **changes}
