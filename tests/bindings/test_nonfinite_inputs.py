"""NaN and infinity in an input travel through: nothing hides them."""

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, OPTIONS, config, forecaster, mixer, noise

BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("bad", BAD)
def test_they_reach_the_output_and_the_state(bad, option, dtype):
    model, u = mixer(dtype, **OPTIONS[option]), noise(2, 20, 8, dtype=dtype)
    u[1, 18, 3] = bad
    out = model.forward(u)
    assert not np.isfinite(out.y[1, 18]).all()
    assert not np.isfinite(model(u)[1, 18]).all()
    assert not np.isfinite(out.state.ssm_state[1]).all()
    _, state = model.step(u[:, 18], model.init_state(2))
    assert not np.isfinite(state.ssm_state[1]).all()


@pytest.mark.parametrize("bad", BAD)
def test_they_stay_in_their_sequence(bad):
    model, u = mixer(), noise(3, 20, 8)
    clean = model.forward(u)
    u[1, 18, 3] = bad
    out = model.forward(u)
    for row in (0, 2):
        assert np.array_equal(out.y[row], clean.y[row])
        assert np.array_equal(out.state.ssm_state[row], clean.state.ssm_state[row])
    grads = out.backward(np.ones_like(u))
    assert np.isfinite(grads.input[[0, 2]]).all()


@pytest.mark.parametrize("bad", BAD)
def test_they_reach_every_gradient(bad):
    model, u = mixer(), noise(2, 20, 8)
    dy = noise(2, 20, 8)
    dy[0, 5, 5] = bad
    grads = model.forward(u).backward(dy)
    assert all(not np.isfinite(grad).all() for grad in grads.values())
    assert not np.isfinite(grads.input).all()


def test_they_reach_the_loss_and_its_gradients():
    model, x = forecaster(), noise(2, 6, 3)
    x[0, 2, 1] = np.nan
    loss = model.forward(x).mse_loss(noise(2, 2))
    assert np.isnan(loss.item())
    norms = loss.backward().norms()
    assert all(np.isnan(norm) for norm in norms.values())


def test_they_travel_in_states():
    model, u = mixer(), noise(2, 4, 8)
    zeros = model.init_state(2)
    ssm = zeros.ssm_state
    ssm[0, 1, 2, 3] = np.nan
    state = mb.Mamba2State(zeros.conv_state, ssm, allow_nonfinite=True)
    out = model.forward(u, state)
    assert np.isnan(out.y[0]).any()
    assert np.isfinite(out.y[1]).all()
    assert np.isnan(out.backward(u, state).state.ssm_state[0]).any()


def test_a_state_after_an_input_of_nan_can_be_passed_on():
    model, u = mixer(), noise(1, 4, 8)
    u[0, 3] = np.nan
    state = model.forward(u).state
    assert np.isnan(model.forward(noise(1, 2, 8), state).y).all()


@pytest.mark.parametrize("size", [1e3, 1e15, 1e30])
def test_large_inputs_stay_finite(size):
    model, u = mixer(), noise(2, 20, 8) * size
    out = model.forward(u)
    assert np.isfinite(out.y).all()
    grads = out.backward(noise(2, 20, 8))
    assert all(np.isfinite(grad).all() for grad in grads.values())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tokens_before_keep_their_values(dtype, bad):
    """The composed scan can't: it multiplies masked tokens by zero, and zero times NaN is NaN."""
    model = mb.Mamba2(config(), dtype=dtype, kernels="fused")
    u = noise(1, 150, 8, dtype=dtype)
    clean = model(u)
    u[0, 98, 3] = bad
    assert np.array_equal(model(u)[0, :98], clean[0, :98])
    assert not np.isfinite(model(u)[0, 98]).all()
