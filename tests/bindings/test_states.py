"""States: passed on, split sequences give what whole ones give, in both directions."""

import copy
import pickle

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close, assert_results_close
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_the_first_state_is_zeros(batch, dtype):
    state = mixer(dtype).init_state(batch)
    assert state.dtype == dtype
    assert_same(
        by_part("init", state),
        by_part("init", mb.Mamba2State(np.zeros((batch, 24, 3), dtype), np.zeros((batch, 4, 4, 4), dtype))),
    )


@pytest.mark.parametrize("batch", [-1, 1.5, True, None, "1", 2**31])
def test_a_batch_is_an_integer(batch):
    for model in (mixer(), forecaster()):
        with pytest.raises(mb.ConfigError, match="batch must be an integer from 0 to below"):
            model.init_state(batch)


def test_no_state_is_zeros():
    model, u = mixer(), noise(2, 20, 8)
    given = model.forward(u, model.init_state(2))
    none = model.forward(u)
    assert np.array_equal(given.y, none.y)
    assert_same(dict(given.backward(u)), dict(none.backward(u)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_states_copy_and_pickle_bit_exactly(way, dtype):
    state = noisy_state(mixer(dtype), 2)
    again = way(state)
    assert again.dtype == dtype
    assert_same(by_part("state", again), by_part("state", state))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_states_pickle_whatever_they_hold(protocol):
    conv, ssm = np.full((1, 24, 3), np.inf), np.full((1, 4, 4, 4), np.nan)
    state = mb.Mamba2State(conv, ssm, allow_nonfinite=True)
    assert_same(
        by_part("state", pickle.loads(pickle.dumps(state, protocol))),
        {"state.conv_state": conv, "state.ssm_state": ssm},
    )


def test_a_state_says_what_it_is():
    assert repr(mixer().init_state(2)) == (
        "Mamba2State(conv_state=(2, 24, 3), ssm_state=(2, 4, 4, 4), dtype=float64)"
    )


def test_a_state_is_frozen():
    state = mixer().init_state(1)
    with pytest.raises(AttributeError):
        state.conv_state = np.zeros((1, 24, 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["conv_state", "ssm_state"])
def test_a_state_of_nan_or_infinity_is_refused_by_name(part, bad):
    parts = {"conv_state": noise(1, 24, 3), "ssm_state": noise(1, 4, 4, 4)}
    parts[part].flat[:2] = bad
    with pytest.raises(ValueError, match=f"^{part} holds 2 NaN or infinite values") as caught:
        mb.Mamba2State(**parts)
    assert isinstance(caught.value, mb.Mamba2BridgeError)
    assert_same(
        by_part("s", mb.Mamba2State(**parts, allow_nonfinite=True)), {f"s.{k}": v for k, v in parts.items()}
    )


def split_run(model, u, cut):
    """Forward in two parts on the state between them, and backward through both."""
    batch = u.shape[0]
    dy, dstate = noise(*u.shape, dtype=model.dtype, seed=5), noisy_state(model, batch, seed=6)
    initial = noisy_state(model, batch)
    whole = model.forward(u, initial)
    first = model.forward(u[:, :cut], initial)
    second = model.forward(u[:, cut:], first.state)
    want = whole.backward(dy, dstate)
    late = second.backward(dy[:, cut:], dstate)
    early = first.backward(dy[:, :cut], late.state)
    got = {
        "out": np.concatenate([first.y, second.y], axis=1),
        **by_part("final", second.state),
        "grad.u": np.concatenate([early.input, late.input], axis=1),
        **by_part("grad.init", early.state),
    }
    got |= {f"grad.param.{name}": grad for name, grad in late.add_(early).items()}
    return got, {
        "out": whole.y,
        **by_part("final", whole.state),
        "grad.u": want.input,
        **by_part("grad.init", want.state),
        **{f"grad.param.{name}": grad for name, grad in want.items()},
    }


@pytest.mark.parametrize("cut", [0, 1, 2, 16, 36, 37])
def test_a_sequence_may_be_cut_anywhere(cut):
    model = mixer()
    scatter(model)
    got, want = split_run(model, noise(2, 37, 8), cut)
    assert_results_close(f"cut at {cut}", got, want, "float64")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_sequence_may_be_cut_in_every_option(option):
    model = mixer(**OPTIONS[option])
    scatter(model)
    got, want = split_run(model, noise(2, 37, 8), 21)
    assert_results_close(option, got, want, "float64")


def test_a_sequence_of_many_short_parts():
    model, u = mixer(d_conv=6), noise(2, 30, 8)
    state, parts = None, []
    for start, end in [(0, 1), (1, 1), (1, 3), (3, 4), (4, 4), (4, 9), (9, 30)]:
        out = model.forward(u[:, start:end], state)
        state = out.state
        parts.append(out.y)
    whole = model.forward(u)
    assert_close("out", np.concatenate(parts, axis=1), whole.y, "value", "float64")
    for name, value in by_part("final", whole.state).items():
        assert_close(name, by_part("final", state)[name], value, "state", "float64")


def test_the_convolutions_state_is_the_raw_input_oldest_first():
    model, u = mixer(), noise(2, 9, 8)
    weight = model.varmap["in_proj.weight"]  # rows z, xBC, dt
    xbc = (u @ weight.T)[..., 16 : 16 + 24]
    got = model.forward(u).state.conv_state
    assert_close("conv_state", got, xbc[:, -3:].transpose(0, 2, 1), "state", "float64")
    short = model.forward(u[:, :1]).state.conv_state
    assert not short[..., :2].any()
    assert_close("conv_state", short[..., 2], xbc[:, 0], "state", "float64")


def test_a_state_given_is_not_changed():
    model, u = mixer(), noise(2, 5, 8)
    state = noisy_state(model, 2)
    before = by_part("state", state)
    model.forward(u, state).backward(u)
    model.step(u[:, 0], state)
    assert_same(by_part("state", state), before)


def test_a_batch_row_does_not_see_the_others():
    model, u = mixer(), noise(3, 20, 8)
    state = noisy_state(model, 3)
    whole = model.forward(u, state)
    for row in range(3):
        alone = model.forward(
            u[row : row + 1],
            mb.Mamba2State(state.conv_state[row : row + 1], state.ssm_state[row : row + 1]),
        )
        assert_close(f"row {row}", alone.y, whole.y[row : row + 1], "value", "float64")


def test_a_forecasters_states_continue():
    model, x = forecaster(n_layer=3), noise(2, 20, 3)
    scatter(model)
    whole = model.forward(x)
    first = model.forward(x[:, :7])
    second = model.forward(x[:, 7:], first.states)
    assert_close("prediction", second.y, whole.y, "value", "float64")
    for layer, (got, want) in enumerate(zip(second.states, whole.states, strict=True)):
        for name, value in by_part(f"layer {layer}", want).items():
            assert_close(name, by_part(f"layer {layer}", got)[name], value, "state", "float64")
    want = model.forward(x, model.init_state(2)).backward(noise(2, 2))
    late = second.backward(noise(2, 2))
    early = first.backward(np.zeros((2, 2)), late.state)
    assert want.state is not None
    assert_close("grad.input", np.concatenate([early.input, late.input], 1), want.input, "grad", "float64")
    for name, grad in late.add_(early).items():
        assert_close(f"grad.{name}", grad, want[name], "grad", "float64")
