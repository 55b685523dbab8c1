"""Gradients against differences of outputs, along random directions: needs no second implementation."""

import numpy as np
import pytest

import mamba2_bridge as mb
from mamba2_bridge.parity.tolerances import tolerance
from native_models import OPTIONS, forecaster, mixer, noise, noisy_state, scatter

STEP = 2e-4
STENCIL = {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}
"""Central differences of fourth order."""


def derivative(value_at):
    """Derivative at 0 of a function of one number."""
    return sum(weight * value_at(at * STEP) for at, weight in STENCIL.items()) / STEP


def check(what, value_at, want, scale):
    """Compare a derivative with what gradients say it is, relative to the size that its terms have."""
    error, bound = abs(derivative(value_at) - want) / scale, tolerance("finite difference", "float64").flat
    assert error <= bound, f"{what}: the gradient is off by {error:.3g} of its terms, {bound:.3g} is allowed"


def problem(model, seqlen=37, batch=2):
    """A scalar made of outputs and final states with random weights; its gradients; and the point it is at."""
    u, state = noise(batch, seqlen, 8, seed=11), noisy_state(model, batch, 12)
    dy, dstate = noise(batch, seqlen, 8, seed=13), noisy_state(model, batch, 14)

    def value(u, state):
        out = model.forward(u, state)
        return (
            np.vdot(dy, out.y)
            + np.vdot(dstate.conv_state, out.state.conv_state)
            + np.vdot(dstate.ssm_state, out.state.ssm_state)
        )

    return value, model.forward(u, state).backward(dy, dstate), u, state


def size(gradient, direction):
    """Scale of a directional derivative: what its terms would sum to at random signs."""
    return float(np.linalg.norm(gradient) * np.linalg.norm(direction) / np.sqrt(max(direction.size, 1)))


@pytest.mark.parametrize("option", OPTIONS)
def test_every_parameter(option):
    model = mixer(**OPTIONS[option])
    scatter(model)
    value, grads, u, state = problem(model)
    for name in model.varmap:
        at, direction = model.varmap[name], noise(*model.varmap[name].shape, seed=21)

        def value_at(step, name=name, at=at, direction=direction):
            model.varmap[name] = at + step * direction
            return value(u, state)

        check(f"{option}: {name}", value_at, np.vdot(grads[name], direction), size(grads[name], direction))
        model.varmap[name] = at


@pytest.mark.parametrize("option", OPTIONS)
def test_input_and_states(option):
    model = mixer(**OPTIONS[option])
    scatter(model)
    value, grads, u, state = problem(model)
    direction = noise(*u.shape, seed=21)
    check(
        f"{option}: u",
        lambda step: value(u + step * direction, state),
        np.vdot(grads.input, direction),
        size(grads.input, direction),
    )
    conv, ssm = noise(*state.conv_state.shape, seed=22), noise(*state.ssm_state.shape, seed=23)
    if conv.size:
        check(
            f"{option}: conv_state",
            lambda step: value(u, mb.Mamba2State(state.conv_state + step * conv, state.ssm_state)),
            np.vdot(grads.state.conv_state, conv),
            size(grads.state.conv_state, conv),
        )
    check(
        f"{option}: ssm_state",
        lambda step: value(u, mb.Mamba2State(state.conv_state, state.ssm_state + step * ssm)),
        np.vdot(grads.state.ssm_state, ssm),
        size(grads.state.ssm_state, ssm),
    )


def test_every_parameter_of_a_forecaster_through_its_loss():
    model, x, target = forecaster(), noise(2, 20, 3, seed=1), noise(2, 2, seed=2)
    scatter(model)
    grads = model.forward(x).mse_loss(target).backward()
    for name in model.varmap:
        at, direction = model.varmap[name], noise(*model.varmap[name].shape, seed=21)

        def value_at(step, name=name, at=at, direction=direction):
            model.varmap[name] = at + step * direction
            return model.forward(x).mse_loss(target).item()

        check(name, value_at, np.vdot(grads[name], direction), size(grads[name], direction))
        model.varmap[name] = at


def test_a_wrong_gradient_is_noticed():
    """The check can fail: a relative fault of a millionth does."""
    model = mixer()
    value, grads, u, state = problem(model)
    direction = grads.input

    def value_at(step):
        return value(u + step * direction, state)

    right = np.vdot(grads.input, direction)
    check("u", value_at, right, size(grads.input, direction))
    with pytest.raises(AssertionError, match="the gradient is off by"):
        check("u", value_at, right * (1 + 1e-6), size(grads.input, direction))
