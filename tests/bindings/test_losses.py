"""Losses: a Python float reduced in float64, and gradients that are its own."""

import numpy as np
import pytest

from assertions import assert_close
from native_models import DTYPES, forecaster, mixer, noise


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_squared_error_is_numpys_in_float64(dtype):
    """Also of a float32 model: the output is widened before the difference is taken."""
    model, u = mixer(dtype), noise(3, 50, 8, dtype=dtype)
    target = noise(3, 50, 8, dtype=dtype, seed=1)
    out = model.forward(u)
    loss = out.mse_loss(target)
    want = np.mean((out.y.astype("float64") - target.astype("float64")) ** 2)
    assert type(loss.item()) is float
    assert loss.item() == float(loss)
    assert repr(loss) == f"Loss({loss.item()!r})"
    assert_close("loss", np.float64(loss.item()), want, "loss", "float64")


def test_a_difference_below_float32s_rounding_is_seen():
    out = mixer().forward(noise(1, 4, 8))
    assert 0 < out.mse_loss(out.y + 1e-12).item() < 2e-24


def test_a_float32_loss_is_not_narrowed():
    """Two targets whose errors differ by less than float32 can tell give two losses."""
    out = mixer("float32").forward(noise(1, 40, 8, dtype="float32"))
    target = np.zeros((1, 40, 8), "float32")
    nudged = target.copy()
    nudged[0, 0, 0] = 1e-7
    first, second = out.mse_loss(target).item(), out.mse_loss(nudged).item()
    assert first != second
    assert np.float32(first) == np.float32(second)


@pytest.mark.parametrize("dtype", DTYPES)
def test_its_gradients_are_those_of_its_derivative(dtype):
    for model, x in (
        (mixer(dtype), noise(2, 9, 8, dtype=dtype)),
        (forecaster(dtype), noise(2, 9, 3, dtype=dtype)),
    ):
        out = model.forward(x)
        target = noise(*out.y.shape, dtype=dtype, seed=1)
        got = out.mse_loss(target).backward()
        dy = 2 * (out.y.astype("float64") - target) / out.y.size
        want = model.forward(x).backward(dy.astype(dtype))
        assert_close("grad.input", got.input, want.input, "grad", dtype)
        for name in want:
            assert_close(f"grad.{name}", got[name], want[name], "grad", dtype)


def test_a_loss_gives_gradients_of_the_state():
    model, u = mixer(), noise(2, 9, 8)
    grads = model.forward(u, model.init_state(2)).mse_loss(u).backward()
    assert grads.state.ssm_state.any()
    assert model.forward(u).mse_loss(u).backward().state is None


def test_a_perfect_prediction_has_no_loss_and_no_gradient():
    out = mixer().forward(noise(2, 9, 8))
    loss = out.mse_loss(out.y)
    assert loss.item() == 0.0
    grads = loss.backward()
    assert not any(grad.any() for grad in grads.values())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_target_that_is_not_finite_is_seen(bad):
    out = mixer().forward(noise(1, 2, 8))
    target = np.zeros((1, 2, 8))
    target[0, 1, 3] = bad
    assert not np.isfinite(out.mse_loss(target).item())


def test_the_loss_of_nothing_is_nan_and_its_gradients_zeros():
    out = mixer().forward(np.zeros((2, 0, 8)))
    loss = out.mse_loss(np.zeros((2, 0, 8)))
    assert np.isnan(loss.item())
    assert not any(grad.any() for grad in loss.backward().values())
