"""Initial values: they depend on the seed and the name alone, and have the distributions of state-spaces."""

import math

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_value
from mamba2_bridge.parity.tolerances import tolerance
from native_models import OPTIONS, assert_same, config, forecaster

MANY = {"d_model": 256, "headdim": 1, "d_state": 16}


def parameters(dtype="float64", seed=0, **changes):
    return mb.Mamba2(config(**changes), dtype=dtype, seed=seed).state_dict()


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, np.int64(7), np.uint8(7)])
def test_a_seed_gives_the_same_values_again(seed):
    assert_same(parameters(seed=seed), parameters(seed=seed))
    assert_same(forecaster(seed=seed).state_dict(), forecaster(seed=seed).state_dict())


def test_seeds_give_different_values():
    drawn = ["in_proj.weight", "conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "out_proj.weight"]
    of_seed = [parameters(seed=seed) for seed in (0, 1, 2, 2**63)]
    for name in drawn:
        assert len({values[name].tobytes() for values in of_seed}) == len(of_seed), name


def test_the_default_seed_is_zero():
    assert_same(mb.Mamba2(config(), "float64").state_dict(), parameters(seed=0))


@pytest.mark.parametrize("option", OPTIONS)
def test_float32_is_float64_rounded(option):
    double = parameters("float64", seed=3, **OPTIONS[option])
    assert_same(
        parameters("float32", seed=3, **OPTIONS[option]),
        {name: value.astype("float32") for name, value in double.items()},
    )


def test_a_parameters_values_do_not_depend_on_what_else_there_is():
    plain, biased = parameters(), parameters(bias=True, rmsnorm=False)
    for name in ("in_proj.weight", "conv1d.weight", "dt_bias", "A_log", "out_proj.weight"):
        assert np.array_equal(plain[name], biased[name]), name
    two, three = forecaster(n_layer=2).state_dict(), forecaster(n_layer=3).state_dict()
    assert all(np.array_equal(three[name], value) for name, value in two.items())


def test_no_two_parameters_share_their_values():
    values = forecaster(n_layer=3).state_dict()
    drawn = [value.ravel()[:4].tobytes() for name, value in values.items() if len(set(value.ravel())) > 1]
    assert len(set(drawn)) == len(drawn) > 15


def test_initial_values_do_not_depend_on_numpys_or_pythons_generators():
    np.random.seed(0)  # noqa: NPY002
    first = parameters()
    np.random.seed(1)  # noqa: NPY002
    assert_same(parameters(), first)


def uniform(values, low, high):
    """Whether many numbers fill a range evenly: their quantiles are a straight line to within five sigma."""
    values = np.sort(values.ravel())
    assert low <= values[0]
    assert values[-1] <= high
    share = (values - low) / (high - low)
    distance = np.abs(share - (np.arange(share.size) + 0.5) / share.size).max()  # Kolmogorov and Smirnov's
    return distance < 2.5 / math.sqrt(share.size)


@pytest.mark.parametrize("limits", [(1, 16), (0.5, 2.0)])
def test_a_is_uniform(limits):
    a_log = parameters(A_init_range=limits, **MANY)["A_log"]
    assert a_log.shape == (512,)
    assert uniform(np.exp(a_log), *limits)
    assert not uniform(a_log, *np.log(limits))


@pytest.mark.parametrize("limits", [(1e-3, 1e-1), (0.01, 0.02)])
def test_the_step_is_log_uniform(limits):
    dt_bias = parameters(dt_min=limits[0], dt_max=limits[1], **MANY)["dt_bias"]
    steps = np.log1p(np.exp(dt_bias))
    low, high = np.log(limits)
    rounding = tolerance("value", "float64").bound() * abs(low)
    assert uniform(np.log(steps), low - rounding, high + rounding)


def test_the_step_has_a_floor():
    dt_bias = parameters(dt_min=1e-3, dt_max=1e-1, dt_init_floor=0.05, **MANY)["dt_bias"]
    steps = np.log1p(np.exp(dt_bias))
    assert_value("the smallest step", steps.min(), 0.05)
    assert np.mean(dt_bias == dt_bias.min()) > 0.5


@pytest.mark.parametrize("step", [1e-12, 50.0, 800.0])
def test_the_inverse_of_softplus_holds_for_tiny_and_large_steps(step):
    dt_bias = parameters(dt_min=step, dt_max=step, dt_init_floor=1e-300)["dt_bias"]
    assert_value("softplus(dt_bias)", np.logaddexp(0, dt_bias), step)


def test_ranges_of_one_point():
    values = parameters(A_init_range=(2, 2), dt_min=0.03, dt_max=0.03)
    assert_value("A_log", values["A_log"], math.log(2))
    assert_value("softplus(dt_bias)", np.log1p(np.exp(values["dt_bias"])), 0.03)


@pytest.mark.parametrize("per_channel", [False, True])
def test_d_and_the_norms_start_at_one(per_channel):
    values = parameters(D_has_hdim=per_channel, norm_before_gate=True)
    assert values["D"].tolist() == [1.0] * (16 if per_channel else 4)
    assert values["norm.weight"].tolist() == [1.0] * 16
    values = forecaster().state_dict()
    assert values["norm_f.weight"].tolist() == values["layers.1.norm.weight"].tolist() == [1.0] * 8


@pytest.mark.parametrize("d_conv", [1, 2, 4])
def test_the_convolution_starts_as_torchs(d_conv):
    values = parameters(d_conv=d_conv, **MANY)
    bound = 1 / math.sqrt(d_conv)
    assert uniform(values["conv1d.weight"], -bound, bound)
    assert uniform(values["conv1d.bias"], -bound, bound)


def test_conv_init_bounds_the_weights_and_not_the_bias():
    values = parameters(conv_init=0.01, **MANY)
    assert uniform(values["conv1d.weight"], -0.01, 0.01)
    assert uniform(values["conv1d.bias"], -0.5, 0.5)


def test_linear_layers_start_as_torchs():
    values = parameters(bias=True, **MANY)
    for layer, fan_in in (("in_proj", 256), ("out_proj", 512)):
        bound = 1 / math.sqrt(fan_in)
        assert uniform(values[f"{layer}.weight"], -bound, bound), layer
        assert uniform(values[f"{layer}.bias"], -bound, bound), layer
    cfg = mb.Mamba2ForecasterConfig(mixer=config(d_model=256, d_state=2), n_layer=1, d_input=9, d_output=64)
    values = mb.Mamba2Forecaster(cfg, "float64").state_dict()
    for layer, fan_in in (("encoder", 9), ("head", 256)):
        bound = 1 / math.sqrt(fan_in)
        assert uniform(values[f"{layer}.weight"], -bound, bound), layer
        assert uniform(values[f"{layer}.bias"], -bound, bound), layer
