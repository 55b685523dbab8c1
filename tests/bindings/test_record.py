"""Intermediates of a pass: names, values by formula, gradients, what is fed; recording changes no bit."""

import gc
import pickle
import re
import weakref
from collections.abc import Mapping

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close
from mamba2_bridge.parity.tolerances import tolerance
from native_models import DTYPES, OPTIONS, assert_same, by_part, config, noise, noisy_state, scatter

KERNELS = ("composed", "fused")
PROJECTED = ["in_proj.z", "in_proj.xBC", "in_proj.dt"]
MIXER = [*PROJECTED, "conv", "dt", "scan", "norm", "out_proj"]
GATED = ["in_proj.mlp", *MIXER[:-1], "mlp", "out_proj"]
WIDE = ("dt", "scan")
"""What a float32 model computes in float64 on ``kernels="composed"``."""


def mixer(dtype="float64", kernels="composed", **changes):
    model = mb.Mamba2(config(**changes), dtype=dtype, kernels=kernels)
    scatter(model)
    return model


def forecaster(dtype="float64", kernels="composed", **changes):
    cfg = mb.Mamba2ForecasterConfig(mixer=config(**changes), n_layer=2, d_input=3, d_output=2)
    model = mb.Mamba2Forecaster(cfg, dtype=dtype, kernels=kernels)
    scatter(model)
    return model


def taps_of(option):
    return GATED if "d_ssm" in OPTIONS[option] else MIXER


def results(model, out):
    """All that an output and its backward give."""
    y = out.y
    many = isinstance(model, mb.Mamba2Forecaster)
    dy = noise(*y.shape, dtype=model.dtype, seed=3)
    grads = out.backward(dy)
    states = {f"final.{i}": s for i, s in enumerate(out.states if many else [out.state])}
    named = {"y": y, "grad.input": grads.input, **{f"grad.{name}": grad for name, grad in grads.items()}}
    for name, state in states.items():
        named |= by_part(name, state)
    return named


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_names_and_shapes_in_every_option(option, dtype):
    model, u = mixer(dtype, **OPTIONS[option]), noise(2, 20, 8, dtype=dtype)
    out = model.record(u)
    cfg = model.config
    d_ssm, d_mlp = cfg.d_ssm or cfg.d_inner, cfg.d_inner - (cfg.d_ssm or cfg.d_inner)
    widths = {
        "in_proj.mlp": 2 * d_mlp, "in_proj.z": d_ssm, "in_proj.xBC": cfg.conv_dim, "in_proj.dt": cfg.nheads,
        "conv": cfg.conv_dim, "dt": cfg.nheads, "scan": d_ssm, "norm": d_ssm, "mlp": d_mlp, "out_proj": 8,
    }  # fmt: skip
    assert isinstance(out.intermediates, Mapping)
    assert list(out.intermediates) == taps_of(option)
    grads = out.backward(noise(2, 20, 8, dtype=dtype, seed=1))
    assert list(grads.intermediates) == taps_of(option)
    for name in taps_of(option):
        for array in (out.intermediates[name], grads.intermediates[name]):
            assert array.shape == (2, 20, widths[name]), name
            assert array.dtype == dtype, name
            assert np.isfinite(array).all(), name
            assert array.any(), name
    assert np.array_equal(out.intermediates["out_proj"], out.y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_values_are_what_the_formulas_give(option, dtype):
    model, u = mixer(dtype, **OPTIONS[option]), noise(2, 20, 8, dtype=dtype)
    state = noisy_state(model, 2)
    got = dict(model.record(u, state).intermediates)
    p = {name: value.astype("float64") for name, value in model.state_dict().items()}
    cfg = model.config

    columns = u @ p["in_proj.weight"].T + p.get("in_proj.bias", 0)
    sizes = [got[name].shape[2] for name in taps_of(option) if name.startswith("in_proj")]
    names = [name for name in taps_of(option) if name.startswith("in_proj")]
    want = dict(zip(names, np.split(columns, np.cumsum(sizes)[:-1], axis=2), strict=True))

    history = state.conv_state.astype("float64").transpose(0, 2, 1)
    padded = np.concatenate([history, want["in_proj.xBC"]], axis=1)
    weight = p["conv1d.weight"][:, 0]
    conv = sum(weight[:, k] * padded[:, k : k + 20] for k in range(cfg.d_conv))
    want["conv"] = silu(conv + p.get("conv1d.bias", 0))
    want["dt"] = np.clip(np.logaddexp(want["in_proj.dt"] + p["dt_bias"], 0), *cfg.dt_limit)

    x, b, c = np.split(want["conv"], np.cumsum([got["scan"].shape[2], cfg.ngroups * cfg.d_state]), axis=2)
    heads = cfg.nheads // cfg.ngroups
    x = x.reshape(2, 20, cfg.nheads, cfg.headdim)
    b = b.reshape(2, 20, cfg.ngroups, -1).repeat(heads, axis=2)
    c = c.reshape(2, 20, cfg.ngroups, -1).repeat(heads, axis=2)
    s, y = state.ssm_state.astype("float64"), np.zeros_like(x)
    for t in range(20):
        dt = want["dt"][:, t, :, None, None]
        s = np.exp(-dt * np.exp(p["A_log"])[:, None, None]) * s + dt * x[:, t, ..., None] * b[:, t, :, None]
        y[:, t] = np.einsum("bhpn,bhn->bhp", s, c[:, t])
    skip = p["D"].reshape(cfg.nheads, -1)
    want["scan"] = (y + skip * x).reshape(got["scan"].shape)

    gate = silu(want["in_proj.z"])

    def norm(y):
        if not cfg.rmsnorm:
            return y
        groups = cfg.ngroups if cfg.norm_groups is None else cfg.norm_groups
        parts = y.reshape(2, 20, groups, -1)
        root = np.sqrt((parts**2).mean(axis=3, keepdims=True) + cfg.norm_eps)
        return (parts / root).reshape(y.shape) * p["norm.weight"]

    before = cfg.norm_before_gate and cfg.rmsnorm
    want["norm"] = norm(want["scan"]) * gate if before else norm(want["scan"] * gate)
    both = want["norm"]
    if "in_proj.mlp" in want:
        z0, x0 = np.split(want["in_proj.mlp"], 2, axis=2)
        want["mlp"] = silu(z0) * x0
        both = np.concatenate([want["mlp"], want["norm"]], axis=2)
    want["out_proj"] = both @ p["out_proj.weight"].T + p.get("out_proj.bias", 0)
    assert set(got) == set(want)
    for name, value in want.items():
        assert_close(f"{option}: {name}", got[name], value, "value", dtype)


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_taps_of_a_forecaster(kernels):
    model, x = forecaster(kernels=kernels, d_ssm=8), noise(2, 5, 3)
    inside = GATED if kernels == "composed" else ["out_proj"]
    layers = [
        name
        for i in (0, 1)
        for name in (f"layers.{i}.norm", *(f"layers.{i}.mixer.{tap}" for tap in inside), f"layers.{i}")
    ]
    out = model.record(x)
    got = out.intermediates
    assert list(got) == ["encoder", *layers, "norm_f", "head"]
    p = model.varmap
    assert_close("encoder", got["encoder"], x @ p["encoder.weight"].T + p["encoder.bias"], "value", "float64")
    for i, before in enumerate(("encoder", "layers.0")):
        want = got[before] + got[f"layers.{i}.mixer.out_proj"]
        assert np.array_equal(got[f"layers.{i}"], want)
    last = got["layers.1"][:, -1]
    root = np.sqrt((last**2).mean(axis=1, keepdims=True) + 1e-5)
    assert_close("norm_f", got["norm_f"], last / root * p["norm_f.weight"], "value", "float64")
    want = got["norm_f"] @ p["head.weight"].T + p["head.bias"]
    assert_close("head", got["head"], want, "value", "float64")
    assert np.array_equal(got["head"], out.y)
    assert list(out.backward(noise(2, 2)).intermediates) == list(got)


def test_fused_kernels_have_the_output_of_a_mixer_alone():
    model, u = mixer(kernels="fused"), noise(2, 5, 8)
    out, dy = model.record(u), noise(2, 5, 8, seed=1)
    assert_same(dict(out.intermediates), {"out_proj": out.y})
    assert_same(dict(out.backward(dy).intermediates), {"out_proj": dy})


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_recording_changes_no_bit(option, dtype, kernels):
    model, u = mixer(dtype, kernels, **OPTIONS[option]), noise(2, 20, 8, dtype=dtype)
    state = noisy_state(model, 2)
    assert_same(results(model, model.record(u, state)), results(model, model.forward(u, state)))


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_recording_a_forecaster_changes_no_bit(dtype, kernels):
    model, x = forecaster(dtype, kernels, d_ssm=8), noise(2, 20, 3, dtype=dtype)
    states = model.init_state(2)
    assert_same(results(model, model.record(x, states)), results(model, model.forward(x, states)))


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_loss_has_the_gradients_of_intermediates(kernels):
    model, u, target = mixer(kernels=kernels), noise(2, 20, 8), noise(2, 20, 8, seed=1)
    out = model.record(u)
    grads = out.mse_loss(target).backward()
    dy = 2 * (out.y - target) / out.y.size
    want = model.record(u).backward(dy)
    assert list(grads.intermediates) == list(out.intermediates) == list(want.intermediates)
    for name, value in want.intermediates.items():
        assert_close(name, grads.intermediates[name], value, "grad", "float64")


@pytest.mark.parametrize("name", GATED)
def test_gradients_agree_with_finite_differences(name):
    model, u = mixer(d_ssm=8), noise(2, 20, 8)
    state, dy, dstate = noisy_state(model, 2), noise(2, 20, 8, seed=1), noisy_state(model, 2, 5)
    out = model.record(u, state)
    value = out.intermediates[name]
    grad = out.backward(dy, dstate).intermediates[name]
    along = value * noise(*value.shape, seed=4)

    def objective(h):
        out = model.record(u, state, feed={name: value + h * along})
        wanted = {"y": dy, **by_part("state", dstate)}
        got = {"y": out.y, **by_part("state", out.state)}
        return sum(np.vdot(got[part], wanted[part]) for part in wanted)

    h = 2e-4
    slope = (8 * (objective(h) - objective(-h)) - objective(2 * h) + objective(-2 * h)) / (12 * h)
    scale = max(abs(slope), 1e-2 * np.abs(grad * along).sum())
    assert abs(slope - np.vdot(grad, along)) / scale <= tolerance("finite difference", "float64").flat


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [mixer, forecaster])
def test_feeding_a_models_own_intermediates_changes_no_bit(make, dtype):
    model = make(dtype, d_ssm=8)
    x = noise(2, 20, 8 if make is mixer else 3, dtype=dtype)
    first = model.record(x)
    values, y = dict(first.intermediates), first.y
    grads = first.backward(noise(*y.shape, dtype=dtype, seed=3))
    gradients = dict(grads.intermediates)
    feed = {
        name: (value, gradients[name])
        for name, value in values.items()
        if dtype == "float64" or name.rpartition(".")[2] not in WIDE or name.endswith("in_proj.dt")
    }
    again = model.record(x, feed=feed)
    assert_same(dict(again.intermediates), values)
    again = model.record(x, feed=feed)
    assert_same(results(model, again), results(model, model.forward(x)))
    again = model.record(x, feed=feed)
    assert_same(dict(again.backward(noise(*y.shape, dtype=dtype, seed=3)).intermediates), gradients)


def test_what_goes_on_is_what_was_fed_and_what_is_recorded_is_what_arrived():
    model, u, dy = mixer(), noise(2, 20, 8), noise(2, 20, 8, seed=1)
    plain = model.record(u)
    values = dict(plain.intermediates)
    plain_grads = plain.backward(dy)
    arrived = dict(plain_grads.intermediates)
    value, gradient = noise(2, 20, 16, seed=5), noise(2, 20, 16, seed=6)

    out = model.record(u, feed={"scan": (value, gradient)})
    before = [name for name in MIXER if name not in ("scan", "norm", "out_proj")]
    got = dict(out.intermediates)
    assert_same({name: got[name] for name in [*before, "scan"]}, {n: values[n] for n in [*before, "scan"]})
    gate = silu(values["in_proj.z"])
    root = np.sqrt(((value * gate) ** 2).mean(axis=2, keepdims=True) + model.config.norm_eps)
    assert_close("norm", got["norm"], value * gate / root * model.varmap["norm.weight"], "value", "float64")

    grads = out.backward(dy)
    # After the tap gradients depend on the fed value; before it, on the fed gradient.
    assert_same({"norm": grads.intermediates["norm"]}, {"norm": arrived["norm"]})
    assert not np.array_equal(grads.intermediates["scan"], arrived["scan"])
    assert not np.array_equal(grads.intermediates["scan"], gradient)
    x = values["conv"][:, :, :16].reshape(2, 20, 4, 4)
    assert_close("D", grads["D"], (x * gradient.reshape(x.shape)).sum(axis=(0, 1, 3)), "grad", "float64")

    # A value alone: gradients go back as they arrive.
    alone = model.record(u, feed={"scan": value}).backward(dy)
    back = alone.intermediates["scan"].reshape(x.shape)
    assert_same({"scan": alone.intermediates["scan"]}, {"scan": grads.intermediates["scan"]})
    assert_close("D", alone["D"], (x * back).sum(axis=(0, 1, 3)), "grad", "float64")
    paired = model.record(u, feed={"scan": (value, None)}).backward(dy)
    assert_same(dict(paired), dict(alone))


def test_an_error_goes_no_further_than_the_next_fed_intermediate():
    model, u, dy = mixer(), noise(2, 20, 8), noise(2, 20, 8, seed=1)
    right = model.record(u)
    values = dict(right.intermediates)
    gradients = dict(right.backward(dy).intermediates)
    feed = {name: (values[name], gradients[name]) for name in MIXER}
    reached = {
        "in_proj.xBC": (["conv"], ["in_proj.xBC"]),
        "conv": (["scan"], ["dt", "in_proj.xBC"]),
        "dt": (["scan"], ["conv", "in_proj.dt"]),
        "norm": (["out_proj"], ["in_proj.z", "scan"]),
        "out_proj": ([], ["norm"]),
    }
    for name, (down, up) in reached.items():
        wrong = {**feed, name: (1.1 * values[name], 1.1 * gradients[name])}
        out = model.record(u, feed=wrong)
        grads = out.backward(dy).intermediates
        moved = {n for n in MIXER if not np.array_equal(out.intermediates[n], values[n])}
        moved_back = {n for n in MIXER if not np.array_equal(grads[n], gradients[n])}
        assert moved == set(down), name
        assert moved_back >= set(up) - {name}, name
        assert moved_back <= {*up, name}, name


RIGHT, SINGLE = np.zeros((2, 20, 4)), np.zeros((2, 20, 4), "float32")
REFUSED = {
    "shape": (
        {"dt": np.zeros((2, 20, 5))},
        mb.ShapeError,
        "the value fed to dt must have shape (2, 20, 4), got (2, 20, 5)",
    ),
    "gradient's shape": (
        {"dt": (RIGHT, np.zeros(4))},
        mb.ShapeError,
        "the gradient fed to dt must have shape (2, 20, 4), got (4,)",
    ),
    "dtype": ({"dt": SINGLE}, mb.DTypeError, "the value fed to dt must be float64, got float32"),
    "gradient's dtype": (
        {"dt": (RIGHT, SINGLE)},
        mb.DTypeError,
        "the gradient fed to dt must be float64, got float32",
    ),
    "None": ({"dt": None}, mb.DTypeError, "the value fed to dt"),
    "name": (
        {"dt": RIGHT, "mlp": RIGHT},
        mb.ConfigError,
        f'feed must be by the names of intermediates ({", ".join(MIXER)}), got ["mlp"]',
    ),
    "no string": ({1: RIGHT}, mb.ConfigError, "names in feed must be strings, got 1"),
    "triple": (
        {"dt": (1, 2, 3)},
        mb.ConfigError,
        "feed['dt'] must be an array or (value, gradient), got 3 elements",
    ),
    "list": ([1], mb.ConfigError, "feed must be a mapping from names to arrays, got list"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(what):
    feed, error, message = REFUSED[what]
    model, u = mixer(), noise(2, 20, 8)
    with pytest.raises(error, match="^" + re.escape(message)):
        model.record(u, feed=feed)
    assert_same({"y": model.record(u).y}, {"y": model.forward(u).y})


def test_the_rules_of_forward_hold():
    model, u = mixer(), noise(2, 20, 8)
    for wrong in (u[0], u.astype("float32")):
        with pytest.raises((mb.ShapeError, mb.DTypeError), match="u must"):
            model.record(wrong)
    with pytest.raises(TypeError, match="state must be a Mamba2State"):
        model.record(u, 1)
    with pytest.raises(mb.ShapeError, match="state"):
        model.record(u, model.init_state(3))
    out = model.record(u)
    out.backward(u)
    with pytest.raises(mb.GraphError, match="before"):
        out.backward(u)
    out = model.record(u)
    model.varmap["D"] = np.ones(4)
    with pytest.raises(mb.GraphError, match="parameters have changed"):
        out.backward(u)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 5, 8)])
def test_an_empty_input_has_no_intermediates(shape, kernels):
    model, u = mixer(kernels=kernels), np.zeros(shape)
    out = model.record(u)
    assert out.y.shape == shape
    assert len(out.intermediates) == 0
    assert len(out.backward(u).intermediates) == 0
    with pytest.raises(mb.ConfigError, match="an input without elements has no intermediates"):
        model.record(u, feed={"out_proj": u})
    assert len(forecaster(kernels=kernels).record(np.zeros((0, 5, 3))).intermediates) == 0


def test_forward_records_nothing():
    out = mixer().forward(noise(2, 20, 8))
    assert len(out.intermediates) == 0
    assert len(out.backward(noise(2, 20, 8)).intermediates) == 0


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", ["plain", "gated MLP", "d_conv=1", "all"])
def test_steps_have_the_intermediates_of_a_sequence(option, dtype, kernels):
    model, u = mixer(dtype, kernels, **OPTIONS[option]), noise(2, 20, 8, dtype=dtype)
    want = model.record(u).intermediates
    state = plain = model.init_state(2)
    for t in range(20):
        y_t, state, got = model.record_step(u[:, t], state)
        y, plain = model.step(u[:, t], plain)
        assert_same({"y": y_t, **by_part("state", state)}, {"y": y, **by_part("state", plain)})
        assert list(got) == list(want)
        for name in want:
            assert got[name].shape == (2, 1, want[name].shape[2])
            assert_close(f"{name} of {t}", got[name][:, 0], want[name][:, t], "value", dtype)


def test_a_forecasters_step():
    model, x_t = forecaster(), noise(2, 3)
    y, states, got = model.record_step(x_t, model.init_state(2))
    out = model.record(x_t[:, None], model.init_state(2))
    assert_same(dict(got), dict(out.intermediates))
    assert np.array_equal(y, out.y)
    assert len(states) == 2
    y, _, got = model.record_step(x_t, states, feed={"norm_f": np.zeros((2, 8))})
    assert np.array_equal(y, np.tile(model.varmap["head.bias"], (2, 1)))
    assert got["norm_f"].any()


def test_a_step_takes_values_alone():
    model, u_t = mixer(), noise(2, 8)
    y_t, _, got = model.record_step(u_t, model.init_state(2), feed={"norm": np.zeros((2, 1, 16))})
    assert not y_t.any()
    assert got["norm"].any()
    for feed, error, message in [
        ({"norm": np.zeros((2, 16))}, mb.ShapeError, "(2, 1, 16), got (2, 16)"),
        ({"mlp": np.zeros((2, 1, 16))}, mb.ConfigError, "feed must be by the names of intermediates"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            model.record_step(u_t, model.init_state(2), feed=feed)
    pair = (np.zeros((2, 1, 16)), np.zeros((2, 1, 16)))
    with pytest.raises(mb.ConfigError, match=r'a step has no backward, got \["norm"\]'):
        model.record_step(u_t, model.init_state(2), feed={"norm": pair})


def test_a_mapping_of_copies():
    out = mixer().record(noise(2, 20, 8))
    got = out.intermediates
    got["dt"][:] = np.nan
    assert np.isfinite(got["dt"]).all()
    assert "dt" in got
    assert len(got) == 8
    for name in ("mlp", "", 3, None):
        assert name not in got
        with pytest.raises(KeyError):
            got[name]
    with pytest.raises(TypeError):
        got["dt"] = np.zeros((2, 20, 4))
    assert repr(got).startswith("Intermediates(in_proj.z: (2, 20, 16), in_proj.xBC: (2, 20, 24), ")


def test_intermediates_outlive_output_and_graph():
    model, u = mixer(), noise(2, 20, 8)
    out = model.record(u)
    values, want = out.intermediates, dict(out.intermediates)
    grads = out.backward(u)
    gone = weakref.ref(out)
    del out
    gc.collect()
    assert gone() is None
    assert_same(dict(values), want)
    assert_same(dict(grads.intermediates), dict(model.record(u).backward(u).intermediates))


def test_what_changes_gradients_of_parameters_leaves_those_of_intermediates():
    model, u = mixer(), noise(2, 20, 8)
    grads = model.record(u).backward(u)
    before = dict(grads.intermediates)
    grads.scale_(2.0).add_(model.forward(u).backward(u))
    assert_same(dict(grads.intermediates), before)


def test_what_is_not_finite_is_recorded_and_fed():
    model, u = mixer(), noise(2, 20, 8)
    u[0, 3, 0] = np.nan
    assert np.isnan(model.record(u).intermediates["in_proj.z"][0, 3]).all()
    out = model.record(noise(2, 20, 8), feed={"norm": np.full((2, 20, 16), np.inf)})
    assert not np.isfinite(out.y).any()


def test_models_are_pickled_and_recordings_are_not():
    model, u = mixer(), noise(2, 20, 8)
    out = model.record(u)
    again = pickle.loads(pickle.dumps(model))
    assert_same(dict(again.record(u).intermediates), dict(out.intermediates))
    for thing in (out, out.intermediates, out.backward(u)):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError), match="pickle"):
            pickle.dumps(thing)
