"""Nothing in, nothing out: seqlen 0 and batch 0."""

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, OPTIONS, assert_same, by_part, forecaster, mixer, noisy_state


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 5, 8), (0, 0, 8)])
def test_an_empty_input(shape, option, dtype):
    model, u = mixer(dtype, **OPTIONS[option]), np.zeros(shape, dtype)
    state, dstate = noisy_state(model, shape[0]), noisy_state(model, shape[0], 9)
    out = model.forward(u, state)
    assert_same({"y": out.y, "inference": model(u)}, {"y": u, "inference": u})
    assert_same(by_part("state", out.state), by_part("state", state))
    grads = out.backward(u, dstate)
    assert_same(dict(grads), {name: np.zeros_like(value) for name, value in model.varmap.items()})
    assert_same({"input": grads.input}, {"input": u})
    assert_same(by_part("state", grads.state), by_part("state", dstate))


@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 5, 8)])
def test_without_states(shape):
    model, u = mixer(), np.zeros(shape)
    out = model.forward(u)
    assert_same(by_part("state", out.state), by_part("state", model.init_state(shape[0])))
    grads = out.backward(u)
    assert grads.state is None
    assert not any(grad.any() for grad in grads.values())
    zeros = model.forward(u, model.init_state(shape[0])).backward(u).state
    assert_same(by_part("state", zeros), by_part("state", model.init_state(shape[0])))


def test_a_step_of_no_sequences():
    model = mixer()
    y_t, state = model.step(np.zeros((0, 8)), model.init_state(0))
    assert y_t.shape == (0, 8)
    assert state.ssm_state.shape == (0, 4, 4, 4)


def test_the_rules_hold_for_empty_inputs():
    model = mixer()
    with pytest.raises(mb.ShapeError):
        model(np.zeros((2, 0, 7)))
    with pytest.raises(mb.DTypeError):
        model(np.zeros((2, 0, 8), "float32"))
    out = model.forward(np.zeros((2, 0, 8)))
    with pytest.raises(mb.ShapeError):
        out.backward(np.zeros((0, 2, 8)))
    out.backward(np.zeros((2, 0, 8)))
    with pytest.raises(mb.GraphError):
        out.backward(np.zeros((2, 0, 8)))
    out = model.forward(np.zeros((2, 0, 8)))
    model.varmap["D"] = np.zeros(4)
    with pytest.raises(mb.GraphError):
        out.backward(np.zeros((2, 0, 8)))


def test_optimizers_take_the_gradients_of_nothing():
    model = mixer()
    before = model.state_dict()
    grads = model.forward(np.zeros((2, 0, 8))).backward(np.zeros((2, 0, 8)))
    mb.optim.SGD(model).step(grads)
    assert mb.optim.clip_grad_norm(grads, 1.0) == 0.0
    assert not any(grads.norms().values())
    assert_same(model.state_dict(), before)


def test_a_forecaster_without_sequences():
    model, x = forecaster(), np.zeros((0, 5, 3))
    out = model.forward(x)
    assert out.y.shape == model(x).shape == (0, 2)
    assert [state.ssm_state.shape for state in out.states] == [(0, 4, 4, 4)] * 2
    grads = out.backward(np.zeros((0, 2)))
    assert list(grads) == list(model.varmap)
    assert not any(grad.any() for grad in grads.values())


def test_a_forecaster_needs_a_last_timestep():
    with pytest.raises(mb.ShapeError, match=r"x must have shape \(batch, seqlen >= 1, d_input=3\)"):
        forecaster()(np.zeros((2, 0, 3)))
