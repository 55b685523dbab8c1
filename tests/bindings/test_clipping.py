"""Clipping by the norm of all gradients together, as torch.nn.utils.clip_grad_norm_."""

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close
from native_models import DTYPES, assert_same, mixer, noise


def grads_of(dtype="float64"):
    u = noise(2, 9, 8, dtype=dtype)
    return mixer(dtype).forward(u).backward(u)


def norm_of(grads):
    return np.sqrt(sum(np.sum(grad.astype("float64") ** 2) for grad in grads.values()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.999])
def test_a_larger_norm_is_scaled_down(share, dtype):
    grads = grads_of(dtype)
    before, norm, kept_input = dict(grads), norm_of(grads), grads.input
    got = mb.optim.clip_grad_norm(grads, share * norm)
    assert type(got) is float
    assert_close("norm", np.float64(got), norm, "loss", "float64")
    factor = share * norm / (norm + 1e-6)
    for name, grad in before.items():
        assert_close(name, grads[name], (grad * np.float64(factor)).astype(dtype), "value", dtype)
    assert norm_of(grads) <= share * norm * (1 + np.finfo(dtype).eps * 10)
    assert np.array_equal(grads.input, kept_input)


@pytest.mark.parametrize("limit", [1.001, 10.0, np.inf])
def test_a_smaller_norm_is_left_alone(limit):
    grads = grads_of()
    before = dict(grads)
    mb.optim.clip_grad_norm(grads, limit * norm_of(grads))
    assert_same(dict(grads), before)


@pytest.mark.torch
def test_it_is_torchs_formula():
    torch = pytest.importorskip("torch")
    grads = grads_of()
    parameters = []
    for grad in grads.values():
        parameters.append(torch.zeros(grad.shape, dtype=torch.float64))
        parameters[-1].grad = torch.from_numpy(grad)
    want = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
    assert_close("norm", np.float64(mb.optim.clip_grad_norm(grads, 0.5)), want.numpy(), "loss", "float64")
    for name, parameter in zip(grads, parameters, strict=True):
        assert_close(name, grads[name], parameter.grad.numpy(), "value", "float64")


def test_a_norm_that_is_not_finite_does_not_go_unseen():
    grads = grads_of()
    grads.scale_(np.nan)
    assert np.isnan(mb.optim.clip_grad_norm(grads, 1.0))
    assert all(np.isnan(grad).all() for grad in grads.values())


def test_float32_gradients_whose_squares_overflow():
    grads = grads_of("float32").scale_(1e30)
    norm = norm_of(grads)
    assert_close("norm", np.float64(mb.optim.clip_grad_norm(grads, 1.0)), norm, "loss", "float64")
    assert_close("norm after", np.float64(norm_of(grads)), np.float64(1.0), "value", "float32")


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
def test_the_limit_is_a_number_of_at_least_zero(wrong):
    with pytest.raises(mb.ConfigError, match="max_norm must be a number of at least 0"):
        mb.optim.clip_grad_norm(grads_of(), wrong)


@pytest.mark.parametrize("wrong", [None, {}, dict(grads_of())])
def test_only_gradients_are_clipped(wrong):
    with pytest.raises(TypeError, match="grads must be Gradients, got"):
        mb.optim.clip_grad_norm(wrong, 1.0)
