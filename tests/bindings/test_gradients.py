"""Gradients: a mapping of every parameter in the model's order, with input and state beside it."""

from collections.abc import Mapping

import numpy as np
import pytest

import mamba2_bridge as mb
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
    run,
    scatter,
)

MIXER = [
    "in_proj.weight",
    "conv1d.weight",
    "conv1d.bias",
    "dt_bias",
    "A_log",
    "D",
    "norm.weight",
    "out_proj.weight",
]


def backward(model, u=None, seed=0):
    u = noise(2, 20, 8, dtype=model.dtype) if u is None else u
    return model.forward(u).backward(noise(*u.shape, dtype=model.dtype, seed=seed))


def test_every_parameter_in_the_models_order():
    model = mixer()
    grads = backward(model)
    assert isinstance(grads, Mapping)
    assert list(grads) == list(model.varmap) == list(model.state_dict()) == MIXER
    assert len(grads) == 8
    assert "D" in grads
    assert "E" not in grads
    assert 3 not in grads
    assert list(grads.items())[0][0] == MIXER[0]
    for name in ("E", "", 3, None):
        with pytest.raises(KeyError):
            grads[name]
    with pytest.raises(TypeError):
        grads["D"] = np.zeros(4)


def test_the_order_of_every_option():
    with_biases = mixer(bias=True)
    assert list(backward(with_biases)) == [
        "in_proj.weight",
        "in_proj.bias",
        *MIXER[1:],
        "out_proj.bias",
    ]
    assert list(backward(mixer(conv_bias=False, rmsnorm=False))) == [
        name for name in MIXER if name not in ("conv1d.bias", "norm.weight")
    ]
    model = forecaster()
    grads = model.forward(noise(1, 4, 3)).backward(noise(1, 2))
    mixers = [
        f"layers.{i}.{name}" for i in (0, 1) for name in ["norm.weight", *(f"mixer.{n}" for n in MIXER)]
    ]
    assert list(grads) == [
        "encoder.weight", "encoder.bias", *mixers, "norm_f.weight", "head.weight", "head.bias"
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_no_gradient_is_zero_and_all_are_of_the_models_dtype(option, dtype):
    model = mixer(dtype, **OPTIONS[option])
    scatter(model)
    for name, value in run(model, noise(2, 20, 8, dtype=dtype)).items():
        assert value.dtype == dtype, name
        assert np.isfinite(value).all(), name
        assert value.any() or value.size == 0, name


def test_no_gradient_of_a_deep_forecaster_is_zero():
    model = forecaster(n_layer=6)
    grads = model.forward(noise(2, 9, 3), model.init_state(2)).backward(noise(2, 2))
    assert all(grad.any() for grad in grads.values())
    assert grads.input.any(axis=(0, 2)).all()
    assert all(state.ssm_state.any() and state.conv_state.any() for state in grads.state)


def test_the_state_has_gradients_where_one_was_given():
    model, u = mixer(), noise(2, 5, 8)
    assert model.forward(u).backward(u).state is None
    state = model.forward(u, model.init_state(2)).backward(u).state
    assert isinstance(state, mb.Mamba2State)
    assert state.conv_state.any()
    assert state.ssm_state.any()
    assert forecaster().forward(noise(2, 5, 3)).backward(noise(2, 2)).state is None


def test_a_state_without_elements_has_a_gradient_without_elements():
    model, u = mixer(d_conv=1), noise(2, 5, 8)
    grads = model.forward(u, noisy_state(model, 2)).backward(u, noisy_state(model, 2))
    assert grads.state.conv_state.shape == (2, 24, 0)
    assert grads.state.ssm_state.any()


def test_backward_is_linear_in_its_upstream_gradients():
    model, u = mixer(), noise(2, 20, 8)
    state = noisy_state(model, 2)
    dy, dstate = noise(2, 20, 8, seed=1), noisy_state(model, 2, 4)
    both = model.forward(u, state).backward(dy, dstate)
    only_y = model.forward(u, state).backward(dy)
    only_state = model.forward(u, state).backward(np.zeros_like(dy), dstate)
    assert_close("grad.input", only_y.input + only_state.input, both.input, "grad", "float64")
    for name in both:
        if name in ("D", "norm.weight", "out_proj.weight"):
            assert not only_state[name].any(), name  # the final state doesn't pass through them
        assert_close(f"grad.{name}", only_y[name] + only_state[name], both[name], "grad", "float64")
    for name, value in by_part("grad.init", both.state).items():
        got = by_part("grad.init", only_y.state)[name] + by_part("grad.init", only_state.state)[name]
        assert_close(name, got, value, "grad", "float64")


def test_backward_twice_gives_the_same_bits():
    model, u = mixer("float32"), noise(2, 50, 8, dtype="float32")
    first = run(model, u)
    for _ in range(3):
        assert_same(run(model, u), first)


def test_add_is_the_sum_and_gives_itself_back():
    model = mixer()
    grads, other = backward(model, seed=1), backward(model, seed=2)
    first, second, kept_input = dict(grads), dict(other), grads.input
    assert grads.add_(other) is grads
    assert_same(dict(grads), {name: first[name] + second[name] for name in first})
    assert_same(dict(other), second)
    assert np.array_equal(grads.input, kept_input)
    grads.add_(grads)
    assert_same(dict(grads), {name: 2 * (first[name] + second[name]) for name in first})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [0.5, -3, np.float32(2), np.int64(0)])
def test_scale_multiplies_and_gives_itself_back(factor, dtype):
    grads = backward(mixer(dtype))
    before, kept_input = dict(grads), grads.input
    assert grads.scale_(factor) is grads
    assert_same(dict(grads), {name: value * np.dtype(dtype).type(factor) for name, value in before.items()})
    assert np.array_equal(grads.input, kept_input)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_are_euclidean_and_in_float64(dtype):
    grads = backward(mixer(dtype))
    norms = grads.norms()
    assert list(norms) == list(grads)
    for name, norm in norms.items():
        assert type(norm) is float
        want = np.sqrt(np.sum(grads[name].astype("float64") ** 2))
        assert_close(f"|{name}|", np.float64(norm), want, "loss", "float64")
    grads.scale_(1e30)  # whose squares are more than float32 holds
    assert all(np.isfinite(norm) for norm in grads.norms().values())


def test_gradients_of_other_parameters_are_not_added():
    plain, biased, wide, single = mixer(), mixer(bias=True), mixer(d_state=8), mixer("float32")
    grads = backward(plain)
    before = dict(grads)
    with pytest.raises(mb.StateDictError, match=r"in_proj\.bias, out_proj\.bias"):
        grads.add_(backward(biased))
    with pytest.raises(mb.MissingGradientError, match=r"in_proj\.bias"):
        backward(biased).add_(grads)
    with pytest.raises(mb.ShapeError, match=r"^in_proj\.weight must have shape"):
        grads.add_(backward(wide))
    with pytest.raises(mb.DTypeError, match=r"^in_proj\.weight must be float64, got float32"):
        grads.add_(backward(single))
    for other in ({}, dict(before), None, 1.0):
        with pytest.raises(TypeError, match="other must be Gradients, got"):
            grads.add_(other)
    assert_same(dict(grads), before)


def test_gradients_say_what_they_are():
    assert repr(backward(mixer())).startswith("Gradients(in_proj.weight: |g|=")
