"""Arrays out: writable, contiguous, of the model's dtype, and nobody else's memory."""

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, assert_same, forecaster, mixer, noise, noisy_state, run


def everything(model, u, state):
    """Each array that a mixer gives, by a function that asks for it anew."""
    out = model.forward(u, state)
    kept = out.state
    grads = model.forward(u, state).backward(u)
    y_t, after = model.step(u[:, 0], state)
    return {
        "y": lambda: out.y,
        "final conv": lambda: kept.conv_state,
        "final ssm": lambda: kept.ssm_state,
        "inference": lambda: model(u),
        "step": lambda: y_t,
        "state after a step": lambda: after.ssm_state,
        "given state": lambda: state.conv_state,
        "gradient": lambda: grads["D"],
        "gradient to the input": lambda: grads.input,
        "gradient to the state": lambda: grads.state.ssm_state,
        "parameter": lambda: model.varmap["D"],
        "state_dict": lambda: model.state_dict()["in_proj.weight"],
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_plain_writable_and_contiguous(dtype):
    model = mixer(dtype)
    for name, get in everything(model, noise(2, 5, 8, dtype=dtype), noisy_state(model, 2)).items():
        array = get()
        assert type(array) is np.ndarray, name
        assert array.dtype == dtype, name
        assert array.dtype.isnative, name
        assert array.flags.writeable, name
        assert array.flags.c_contiguous, name
        assert array.flags.aligned, name


def test_changing_an_array_changes_nothing_else():
    model, u = mixer(), noise(2, 5, 8)
    given = everything(model, u, noisy_state(model, 2))
    before = {name: get().copy() for name, get in given.items()}
    for name, get in given.items():
        get().fill(np.nan)
        if name == "step":  # an array itself; the others are asked for anew
            continue
        assert_same({name: get()}, {name: before[name]})
    want = run(mixer(), u)
    assert_same(run(model, u), want)


def test_changing_outputs_leaves_the_graph_alone():
    model, u = mixer(), noise(2, 5, 8)
    out = model.forward(u, noisy_state(model, 2))
    out.y.fill(np.nan)
    out.state.conv_state.fill(np.nan)
    out.state.ssm_state.fill(np.nan)
    grads = out.backward(u)
    want = model.forward(u, noisy_state(model, 2)).backward(u)
    assert_same(dict(grads), dict(want))


def test_parameters_given_and_read_are_copies():
    model = mixer()
    given = noise(4)
    model.varmap["D"] = given
    given.fill(np.nan)
    model.varmap["D"].fill(np.nan)
    assert np.array_equal(model.varmap["D"], noise(4))


def test_states_given_and_read_are_copies():
    conv, ssm = noise(2, 24, 3), noise(2, 4, 4, 4)
    state = mb.Mamba2State(conv, ssm)
    conv.fill(np.nan)
    state.ssm_state.fill(np.nan)
    assert np.array_equal(state.conv_state, noise(2, 24, 3))
    assert np.array_equal(state.ssm_state, ssm)


def test_a_state_after_forward_does_not_follow_the_state_before():
    model = mixer(d_conv=1)  # the convolution's state has no elements, and is passed through
    before = noisy_state(model, 1)
    after = model.forward(np.zeros((1, 0, 8)), before).state
    after.ssm_state.fill(0.0)
    assert np.array_equal(before.ssm_state, noisy_state(model, 1).ssm_state)


def test_outputs_outlive_the_model():
    model, u = mixer(), noise(2, 5, 8)
    want = run(model, u)
    out = model.forward(u, noisy_state(model, 2))
    varmap = model.varmap
    grads = model.forward(u).backward(u)
    del model
    assert np.array_equal(out.y, want["out"])
    assert set(out.backward(u)) == set(varmap) == set(grads)
    assert all(np.isfinite(value).all() for value in varmap.values())


def test_a_forecaster_gives_arrays_of_its_own():
    model, x = forecaster(), noise(2, 5, 3)
    out = model.forward(x)
    y = out.y
    assert y.shape == (2, 2)
    y.fill(np.nan)
    assert np.isfinite(out.y).all()
    assert np.array_equal(out.y, model(x))
