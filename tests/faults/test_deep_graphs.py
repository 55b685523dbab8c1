"""Candle walks and frees graphs by recursion: neither long sequences nor many layers may overflow a stack."""

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close
from native_models import mixer, noise, python

TINY = {"d_model": 4, "d_state": 2, "headdim": 4}


def loss_and_gradients(seqlen, dtype="float64", **changes):
    model = mb.Mamba2(mb.Mamba2Config(**{**TINY, **changes}), dtype)
    u = noise(1, seqlen, 4, dtype=dtype)
    out = model.forward(u, model.init_state(1))
    return out.y, out.mse_loss(np.zeros_like(u)).backward()


@pytest.mark.slow
def test_a_hundred_thousand_tokens():
    y, grads = loss_and_gradients(100_000, "float32")
    assert np.isfinite(y).all()
    assert all(np.isfinite(grad).all() and grad.any() for grad in grads.values())
    assert grads.input.any(axis=2).all()


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [1, 2])
def test_twenty_thousand_tokens_in_the_smallest_chunks(chunk_size):
    y, grads = loss_and_gradients(20_000, chunk_size=chunk_size)
    want, expected = loss_and_gradients(20_000)
    assert_close("y", y, want, "value", "float64")
    for name in expected:
        assert_close(f"grad.{name}", grads[name], expected[name], "grad", "float64")


def test_a_chunk_longer_than_any_sequence():
    y, grads = loss_and_gradients(50, chunk_size=2**62)
    want, expected = loss_and_gradients(50)
    assert_close("y", y, want, "value", "float64")
    for name in expected:
        assert_close(f"grad.{name}", grads[name], expected[name], "grad", "float64")


LAYERS = """
import threading
import numpy as np
import mamba2_bridge as mb

mixer = mb.Mamba2Config(d_model=2, d_state=1, headdim=2, expand=1, d_conv=2)
model = mb.Mamba2Forecaster(mb.Mamba2ForecasterConfig(mixer=mixer, n_layer=400, d_input=1, d_output=1))
x = np.ones((1, 2, 1), "float32")

def work():
    model.forward(x)  # goes unused
    model.record(x)
    loss = model.forward(x).mse_loss(np.zeros((1, 1), "float32"))
    unused = model.forward(x).mse_loss(np.zeros((1, 1), "float32"))
    print(len(loss.backward()) == len(model.varmap))

threading.stack_size(128 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.slow
def test_hundreds_of_layers_from_a_thread_with_a_small_stack():
    assert python(LAYERS, timeout=300).split() == ["True"]


def test_the_number_of_layers_is_bounded_where_the_stack_is():
    with pytest.raises(mb.ConfigError, match="n_layer must be at most 1000, got 1001"):
        mb.Mamba2ForecasterConfig(mixer=mixer().config, n_layer=1001, d_input=1, d_output=1)
