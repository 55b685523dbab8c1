"""One token after the other gives what the whole sequence gives, in every option."""

import numpy as np
import pytest

from assertions import assert_close
from native_models import (
    DTYPES,
    OPTIONS,
    assert_same,
    by_part,
    forecaster,
    mixer,
    noise,
    noisy_state,
    scatter,
)

SEQLEN = 37


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_steps_equal_forward(option, dtype):
    model, u = mixer(dtype, **OPTIONS[option]), noise(2, SEQLEN, 8, dtype=dtype)
    scatter(model)
    initial = noisy_state(model, 2)
    want = model.forward(u, initial)
    state, tokens = initial, []
    for t in range(SEQLEN):
        y_t, state = model.step(u[:, t], state)
        tokens.append(y_t)
    assert_close(f"{option}: out", np.stack(tokens, axis=1), want.y, "value", dtype)
    for name, value in by_part("final", want.state).items():
        assert_close(f"{option}: {name}", by_part("final", state)[name], value, "state", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_is_a_forward_of_one_token(dtype):
    model, u_t = mixer(dtype), noise(3, 8, dtype=dtype)
    state = noisy_state(model, 3)
    y_t, after = model.step(u_t, state)
    out = model.forward(u_t[:, None], state)
    assert_close("y", y_t, out.y[:, 0], "value", dtype)
    assert_close("ssm_state", after.ssm_state, out.state.ssm_state, "state", dtype)
    assert np.array_equal(after.conv_state, out.state.conv_state)


def test_steps_go_on_from_a_sequence_and_a_sequence_from_steps():
    model, u = mixer(), noise(2, 20, 8)
    state = model.forward(u[:, :9]).state
    y_t, state = model.step(u[:, 9], state)
    rest = model.forward(u[:, 10:], state)
    want = model(u)
    assert_close("token 9", y_t, want[:, 9], "value", "float64")
    assert_close("tokens 10 to 19", rest.y, want[:, 10:], "value", "float64")


def test_every_way_uses_the_present_parameters():
    model, u = mixer(), noise(1, 3, 8)
    state = noisy_state(model, 1)
    ways = {
        "step": lambda: model.step(u[:, 0], state)[0],
        "inference": lambda: model(u),
        "y": lambda: model.forward(u).y,
    }
    before = {way: get() for way, get in ways.items()}
    for name in model.varmap:
        kept = model.varmap[name]
        model.varmap[name] = kept * 0.75 + 0.125
        for way, get in ways.items():
            assert not np.array_equal(get(), before[way]), (name, way)
        model.varmap[name] = kept
    assert_same({way: get() for way, get in ways.items()}, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_forecaster_predicts_after_every_step(dtype):
    model, x = forecaster(dtype, n_layer=3), noise(2, SEQLEN, 3, dtype=dtype)
    scatter(model)
    states = model.init_state(2)
    for t in range(SEQLEN):
        y, states = model.step(x[:, t], states)
        if t in (0, 1, 17, SEQLEN - 1):
            assert_close(f"prediction after {t}", y, model(x[:, : t + 1]), "value", dtype)
    want = model.forward(x).states
    for layer, (got, state) in enumerate(zip(states, want, strict=True)):
        for name, value in by_part(f"layer {layer}", state).items():
            assert_close(name, by_part(f"layer {layer}", got)[name], value, "state", dtype)


def test_single_tokens_are_differentiable_by_forward():
    """Truncated nowhere: gradients through single tokens equal those through the whole."""
    model, u = mixer(), noise(1, 6, 8)
    scatter(model)
    outs, state = [], model.init_state(1)
    for t in range(6):
        outs.append(model.forward(u[:, t : t + 1], state))
        state = outs[-1].state
    total, upstream = None, None
    for out in reversed(outs):
        grads = out.backward(np.ones((1, 1, 8)), upstream)
        upstream = grads.state
        total = grads if total is None else total.add_(grads)
    want = model.forward(u).backward(np.ones((1, 6, 8)))
    assert total is not None
    for name in want:
        assert_close(f"grad.{name}", total[name], want[name], "grad", "float64")
