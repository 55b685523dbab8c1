"""Copies and pickles of models: bit-exact, and independent of the original."""

import copy
import pickle

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, OPTIONS, assert_same, forecaster, mixer, noise, run

WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda model, protocol=protocol: pickle.loads(pickle.dumps(model, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_the_same_model(way, dtype):
    model = mixer(dtype, seed=5)
    model.varmap["D"] = noise(4, dtype=dtype)
    again = WAYS[way](model)
    assert type(again) is mb.Mamba2
    assert (again.config, again.dtype, again.device) == (model.config, dtype, "cpu")
    assert repr(again) == repr(model)
    assert_same(again.state_dict(), model.state_dict())
    u = noise(2, 20, 8, dtype=dtype)
    assert_same(run(again, u), run(model, u))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_independent(way):
    model = forecaster()
    before = model.state_dict()
    again = WAYS[way](model)
    mb.optim.SGD(again, lr=1.0).step(again.forward(noise(2, 5, 3)).backward(noise(2, 2)))
    assert_same(model.state_dict(), before)
    after = again.state_dict()
    model.varmap["head.bias"] = noise(2)
    assert_same(again.state_dict(), after)
    assert all(not np.array_equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_copied(option):
    model = mixer(**OPTIONS[option])
    assert pickle.loads(pickle.dumps(model)).config == model.config


def test_what_is_not_finite_is_copied_too():
    model = mixer()
    model.varmap.update({"D": np.full(4, np.nan)}, allow_nonfinite=True)
    assert_same(pickle.loads(pickle.dumps(model)).state_dict(), model.state_dict())


def test_a_graph_does_not_go_with_a_copy():
    model, u = mixer(), noise(1, 3, 8)
    out = model.forward(u)
    again = copy.deepcopy(model)
    assert len(out.backward(u)) == len(again.varmap)


def test_graphs_and_gradients_are_not_pickled_in_silence():
    out = mixer().forward(noise(1, 3, 8))
    for thing in (out, out.mse_loss(noise(1, 3, 8)), mixer().varmap, out.backward(noise(1, 3, 8))):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError), match="pickle"):
            pickle.dumps(thing)
