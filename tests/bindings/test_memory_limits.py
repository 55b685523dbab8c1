"""Sizes that no machine has memory for are errors, never the end of the process."""

import pytest

from native_models import python

PREPARE = """
import resource
import numpy as np
import mamba2_bridge as mb

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
def small(**changes):
    return mb.Mamba2Config(**{"d_model": 4, "d_state": 2, "headdim": 2, **changes})
def forecaster(**changes):
    return mb.Mamba2Forecaster(mb.Mamba2ForecasterConfig(**{"mixer": small(), "n_layer": 1, "d_input": 1, "d_output": 1, **changes}))
model = mb.Mamba2(small())
endless = np.broadcast_to(np.float32(1), (10**6, 10**6, 4))
def wide():  # a mixer with few parameters and a state of 2**40 numbers
    return mb.Mamba2(small(d_model=1, expand=2**20, headdim=2**20, d_state=2**20, d_conv=1))
"""

CALLS = {
    "parameters": "mb.Mamba2(small(d_model=2**20, headdim=2**20))",
    "state size": "mb.Mamba2(small(d_state=2**40))",
    "convolution": "mb.Mamba2(small(d_conv=2**40))",
    "encoder": "forecaster(d_input=2**40)",
    "head": "forecaster(d_output=2**40)",
    "input": "model(endless)",
    "input with a graph": "model.forward(endless)",
    "swapped bytes": "model(np.broadcast_to(np.array(1, '>f4'), endless.shape))",
    "token": "model.step(np.broadcast_to(np.float32(1), (10**12, 4)), model.init_state(1))",
    "upstream gradient": "model.forward(np.ones((1, 2, 4), 'f4')).backward(endless)",
    "target": "model.forward(np.ones((1, 2, 4), 'f4')).mse_loss(endless)",
    "state": "mb.Mamba2State(endless, endless)",
    "parameter": "model.varmap.update({'D': endless})",
    "zero states": "model.init_state(2**31 - 1)",
    "states of an empty input": "model.forward(np.zeros((10**10, 0, 4), 'f4'))",
    "a state in forward": "wide()(np.zeros((1, 1, 1), 'f4'))",
    "a state for a step": "wide().init_state(1)",
}


@pytest.mark.parametrize("call", CALLS)
def test_more_memory_than_there_is(call):
    code = f"""{PREPARE}
try:
    {CALLS[call]}
except MemoryError as error:
    print(error)
assert model(np.ones((1, 2, 4), "f4")).shape == (1, 2, 4)
"""
    assert "not enough memory for" in (message := python(code)) or "Unable to allocate" in message
