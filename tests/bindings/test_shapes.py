"""Shapes: what fits is taken, what doesn't is refused with the names of its dimensions."""

import re

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import OPTIONS, config, forecaster, mixer, noise


@pytest.mark.parametrize("option", OPTIONS)
def test_the_sizes_of_a_configuration_are_those_of_its_arrays(option):
    cfg = config(**OPTIONS[option])
    model = mixer(**OPTIONS[option])
    out = model.forward(noise(3, 5, 8))
    assert out.y.shape == (3, 5, 8)
    assert out.state.conv_state.shape == (3, cfg.conv_dim, cfg.d_conv - 1)
    assert out.state.ssm_state.shape == (3, cfg.nheads, cfg.headdim, cfg.d_state)
    grads = out.backward(out.y)
    assert {name: grad.shape for name, grad in grads.items()} == {
        name: value.shape for name, value in model.varmap.items()
    }
    assert grads.input.shape == (3, 5, 8)
    assert model.num_parameters() == sum(value.size for value in model.varmap.values())


@pytest.mark.parametrize("shape", [(), (8,), (2, 8), (2, 3, 7), (2, 3, 9), (1, 2, 3, 8), (2, 8, 0)])
def test_an_input_of_another_shape(shape):
    model, u = mixer(), np.zeros(shape)
    got = re.escape(f"u must have shape (batch, seqlen, d_model=8), got {u.shape}")
    for call in (model, model.forward):
        with pytest.raises(mb.ShapeError, match=f"^{got}$"):
            call(u)


@pytest.mark.parametrize("shape", [(), (8,), (2, 7), (2, 1, 8)])
def test_a_token_of_another_shape(shape):
    model, u_t = mixer(), np.zeros(shape)
    got = re.escape(f"u_t must have shape (batch, d_model=8), got {u_t.shape}")
    with pytest.raises(mb.ShapeError, match=f"^{got}$"):
        model.step(u_t, model.init_state(2))


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 3, 4), (2, 0, 3), (1, 2, 3, 3)])
def test_a_forecasters_input_of_another_shape(shape):
    x = np.zeros(shape)
    got = re.escape(f"x must have shape (batch, seqlen >= 1, d_input=3), got {x.shape}")
    for call in (forecaster(), forecaster().forward):
        with pytest.raises(mb.ShapeError, match=f"^{got}$"):
            call(x)


def test_a_forecasters_step_of_another_shape():
    model = forecaster()
    with pytest.raises(mb.ShapeError, match=r"^x_t must have shape \(batch, d_input=3\), got \(2, 4\)$"):
        model.step(np.zeros((2, 4)), model.init_state(2))


def test_upstream_gradients_of_another_shape():
    model = mixer()
    out = model.forward(np.zeros((2, 3, 8)))
    with pytest.raises(mb.ShapeError, match=r"^dy must have shape \(2, 3, 8\) as the output, got \(2, 3\)$"):
        out.backward(np.zeros((2, 3)))
    with pytest.raises(mb.ShapeError, match=r"^dy must have shape .* got \(1, 3, 8\)$"):
        out.backward(np.zeros((1, 3, 8)))  # no broadcasting
    expected = r"^dstate\.conv_state must have shape \(batch=2, conv_dim=24, d_conv-1=3\), got \(3, 24, 3\)$"
    with pytest.raises(mb.ShapeError, match=expected):
        out.backward(np.zeros((2, 3, 8)), model.init_state(3))


def test_a_target_of_another_shape():
    out = mixer().forward(np.zeros((2, 3, 8)))
    with pytest.raises(
        mb.ShapeError, match=r"^target must have shape \(2, 3, 8\) as the output, got \(8,\)$"
    ):
        out.mse_loss(np.zeros(8))


def test_states_of_another_batch_or_model():
    model, u = mixer(), np.zeros((2, 3, 8))
    with pytest.raises(
        mb.ShapeError, match=r"^state\.conv_state must have shape \(batch=2, .*got \(1, 24, 3\)"
    ):
        model.forward(u, model.init_state(1))
    with pytest.raises(mb.ShapeError, match=r"^state\.conv_state must have shape .*got \(3, 24, 3\)"):
        model.step(u[:, 0], model.init_state(3))
    for changes in ({"d_conv": 3}, {"d_state": 3}, {"headdim": 2}, {"ngroups": 2}):
        with pytest.raises(mb.ShapeError, match=r"^state\.(conv|ssm)_state must have shape"):
            model.forward(u, mixer(**changes).init_state(2))


def test_states_of_another_number_of_layers():
    model, x = forecaster(n_layer=3), np.zeros((2, 4, 3))
    with pytest.raises(mb.ShapeError, match=r"must have shape \(3,\): one state for each layer, got \(2,\)"):
        model.forward(x, model.init_state(2)[:2])
    with pytest.raises(mb.ShapeError, match=r"one state for each layer, got \(6,\)"):
        model.step(x[:, 0], model.init_state(2) * 2)
    with pytest.raises(mb.ShapeError, match=r"^dstate must have shape \(3,\)"):
        model.forward(x).backward(np.zeros((2, 2)), [])
    mixed = [*model.init_state(2)[:2], *model.init_state(1)[:1]]
    with pytest.raises(mb.ShapeError, match=r"\[2\]\.conv_state must have shape \(batch=2"):
        model.forward(x, mixed)


def test_a_state_of_wrong_rank_or_two_batch_sizes():
    with pytest.raises(mb.ShapeError, match=r"^conv_state must have shape \(batch, conv_dim, d_conv-1\)"):
        mb.Mamba2State(np.zeros((2, 24)), np.zeros((2, 4, 4, 4)))
    with pytest.raises(
        mb.ShapeError, match=r"^ssm_state must have shape \(batch=2, nheads, headdim, d_state\)"
    ):
        mb.Mamba2State(np.zeros((2, 24, 3)), np.zeros((2, 4, 16)))
    with pytest.raises(mb.ShapeError, match=r"^ssm_state must have shape \(batch=2, "):
        mb.Mamba2State(np.zeros((2, 24, 3)), np.zeros((3, 4, 4, 4)))


@pytest.mark.parametrize("wrong", [(np.zeros((1, 24, 3)), np.zeros((1, 4, 4, 4))), 0, "state", [None]])
def test_what_is_no_state_is_a_type_error(wrong):
    model, u = mixer(), np.zeros((1, 2, 8))
    with pytest.raises(TypeError, match=r"^state must be a Mamba2State, got"):
        model.forward(u, wrong)
    with pytest.raises(TypeError, match=r"^state must be a Mamba2State, got"):
        model.step(u[:, 0], wrong)
    out = model.forward(u)
    with pytest.raises(TypeError, match=r"^dstate must be a Mamba2State, got"):
        out.backward(u, wrong)
    assert len(out.backward(u)) == len(model.varmap)


@pytest.mark.parametrize("wrong", [0, [None], [np.zeros(3)]])
def test_what_is_no_list_of_states_is_a_type_error(wrong):
    model = forecaster(n_layer=1)
    with pytest.raises(TypeError, match=r"^states(\[0\])? must be a (list of )?Mamba2State"):
        model.forward(np.zeros((1, 2, 3)), wrong)
    with pytest.raises(
        TypeError, match=r"^states must be a list of Mamba2State, one a layer, got Mamba2State"
    ):
        model.forward(np.zeros((1, 2, 3)), model.init_state(1)[0])


def test_a_layers_state_is_named_as_the_argument_is():
    model = forecaster()
    states = model.init_state(1)
    x, wrong = noise(2, 4, 3), [states[0], states[1]]
    with pytest.raises(mb.ShapeError, match=r"^states\[0\]\.conv_state must have shape \(batch=2, "):
        model.forward(x, wrong)
    with pytest.raises(mb.ShapeError, match=r"^dstate\[0\]\.conv_state must have shape \(batch=2, "):
        model.forward(x).backward(noise(2, 2), wrong)
