"""Optimizers: the contract around the arithmetic, which tests/parity holds against torch."""

import json

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_close
from native_models import DTYPES, assert_same, forecaster, mixer, noise

MAKE = {
    "AdamW": mb.optim.AdamW,
    "SGD": mb.optim.SGD,
    "momentum": lambda model, **options: mb.optim.SGD(model, momentum=0.9, **options),
    "Nesterov": lambda model, **options: mb.optim.SGD(model, momentum=0.9, nesterov=True, **options),
}


def grads_of(model, seed=0):
    u = noise(2, 9, 8, dtype=model.dtype, seed=seed)
    return model.forward(u).backward(noise(2, 9, 8, dtype=model.dtype, seed=seed + 100))


def train(model, optimizer, steps):
    for seed in steps:
        optimizer.step(grads_of(model, seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKE)
def test_a_step_moves_every_parameter_and_nothing_else(kind, dtype):
    model = mixer(dtype)
    before = model.state_dict()
    grads = grads_of(model)
    kept = dict(grads)
    assert MAKE[kind](model).step(grads) is None
    after = model.state_dict()
    assert all(not np.array_equal(after[name], before[name]) for name in before)
    assert_same(dict(grads), kept)


def test_sgd_is_the_formula():
    model = mixer()
    before, grads = model.state_dict(), grads_of(model)
    mb.optim.SGD(model, lr=0.25, weight_decay=0.5).step(grads)
    for name, value in before.items():
        decay = 0.5 if name in ("in_proj.weight", "conv1d.weight", "out_proj.weight") else 0.0
        want = value - 0.25 * (grads[name] + decay * value)
        assert_close(name, model.varmap[name], want, "optimizer step", "float64")


def test_the_first_step_of_adamw_is_the_formula():
    model = mixer()
    before, grads = model.state_dict(), grads_of(model)
    mb.optim.AdamW(model, lr=0.25, weight_decay=0.5, eps=1e-3).step(grads)
    for name, value in before.items():
        decay = 0.5 if name in ("in_proj.weight", "conv1d.weight", "out_proj.weight") else 0.0
        want = value * (1 - 0.25 * decay) - 0.25 * grads[name] / (np.abs(grads[name]) + 1e-3)
        assert_close(name, model.varmap[name], want, "optimizer step", "float64")


@pytest.mark.parametrize("kind", MAKE)
def test_the_learning_rate_can_be_set(kind):
    model, fixed = mixer(), mixer()
    optimizer = MAKE[kind](model, lr=0.5)
    assert optimizer.lr == 0.5
    optimizer.lr = np.float32(0.25)
    assert optimizer.lr == 0.25
    optimizer.step(grads_of(model))
    MAKE[kind](fixed, lr=0.25).step(grads_of(fixed))
    assert_same(model.state_dict(), fixed.state_dict())
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(mb.ConfigError, match="lr must be a finite number of at least 0, got"):
            optimizer.lr = wrong
    assert optimizer.lr == 0.25


@pytest.mark.parametrize("kind", MAKE)
def test_a_learning_rate_of_zero_moves_nothing(kind):
    model = mixer()
    before = model.state_dict()
    MAKE[kind](model, lr=0.0).step(grads_of(model))
    assert_same(model.state_dict(), before)


@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        (["D"], ["D"]),
        (["*.weight"], ["in_proj.weight", "conv1d.weight", "norm.weight", "out_proj.weight"]),
        (["A_log", "conv1d.*"], ["conv1d.weight", "conv1d.bias", "A_log"]),
        (("*",), list(mixer().varmap)),
        ([], []),
    ],
)
@pytest.mark.parametrize("kind", MAKE)
def test_frozen_parameters_stay(kind, freeze, frozen):
    model = mixer()
    before = model.state_dict()
    train(model, MAKE[kind](model, freeze=freeze, weight_decay=0.5), range(2))
    assert [name for name in before if np.array_equal(model.varmap[name], before[name])] == frozen


def test_a_layer_is_frozen_by_its_prefix():
    model = forecaster()
    before = model.state_dict()
    mb.optim.AdamW(model, freeze=["layers.0.*", "encoder.*"]).step(
        model.forward(noise(2, 5, 3)).backward(noise(2, 2))
    )
    for name, value in before.items():
        frozen = name.startswith(("layers.0.", "encoder."))
        assert np.array_equal(model.varmap[name], value) == frozen, name


@pytest.mark.parametrize("kind", MAKE)
def test_a_pattern_that_freezes_nothing_is_an_error(kind):
    for freeze in (["D", "dt_bais"], ["layers.*"]):
        with pytest.raises(mb.ConfigError, match=f'freeze must be .* got "{freeze[-1][0]}'):
            MAKE[kind](mixer(), freeze=freeze)
    for wrong in ("D", [3], [None]):
        with pytest.raises(mb.ConfigError, match="freeze must be a list of patterns, got"):
            MAKE[kind](mixer(), freeze=wrong)
    with pytest.raises(mb.ConfigError, match="freeze must be a pattern"):
        MAKE[kind](mixer(), freeze=["D**["])


def decayed(model, **options):
    """The names that weight decay alone moves."""
    before = model.state_dict()
    x = noise(1, 3, 8 if isinstance(model, mb.Mamba2) else 3)
    out = model.forward(x)
    mb.optim.SGD(model, lr=0.5, weight_decay=0.5, **options).step(out.backward(np.zeros_like(out.y)))
    return [name for name, value in before.items() if not np.array_equal(model.varmap[name], value)]


def test_state_space_parameters_norms_and_biases_do_not_decay():
    assert decayed(mixer(bias=True)) == ["in_proj.weight", "conv1d.weight", "out_proj.weight"]
    got = decayed(forecaster())
    layers = [f"layers.{i}.mixer.{name}.weight" for i in (0, 1) for name in ("in_proj", "conv1d", "out_proj")]
    assert got == ["encoder.weight", *layers, "head.weight"]


def test_they_decay_when_asked():
    assert decayed(mixer(), no_decay=()) == list(mixer().varmap)
    assert decayed(mixer(), no_decay=["*.weight"]) == ["conv1d.bias", "dt_bias", "A_log", "D"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKE)
def test_a_resumed_run_is_bit_exact(kind, dtype):
    straight = mixer(dtype)
    optimizer = MAKE[kind](straight, lr=0.01, weight_decay=0.1, freeze=["norm.*"])
    train(straight, optimizer, range(3))
    saved, weights = optimizer.state_dict(), straight.state_dict()
    train(straight, optimizer, range(3, 6))

    resumed = mixer(dtype, seed=9)
    resumed.load_state_dict(weights)
    other = MAKE[kind](resumed, lr=0.5, weight_decay=0.0, freeze=["norm.*"])
    assert other.load_state_dict(saved) is None
    assert other.lr == 0.01
    train(resumed, other, range(3, 6))
    assert_same(resumed.state_dict(), straight.state_dict())
    assert_state_equal(other.state_dict(), optimizer.state_dict())


def assert_state_equal(got, want):
    assert list(got) == list(want)
    for name, value in want.items():
        assert np.array_equal(got[name], value), name


def test_the_state_is_readable():
    model = mixer("float32")
    optimizer = mb.optim.AdamW(model, lr=0.5, freeze=["D"])
    train(model, optimizer, range(3))
    state = optimizer.state_dict()
    scalars = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
    assert scalars == {"step": 3, "lr": 0.5, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    assert json.loads(json.dumps(scalars)) == scalars
    trained = [name for name in model.varmap if name != "D"]
    assert [name for name in state if name not in scalars] == [
        f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq") for name in trained
    ]
    for name in trained:
        assert state[f"exp_avg.{name}"].shape == model.varmap[name].shape
        assert state[f"exp_avg.{name}"].dtype == "float32"
    state["exp_avg.A_log"].fill(np.nan)
    assert np.isfinite(optimizer.state_dict()["exp_avg.A_log"]).all()


def test_moments_are_those_of_the_state_and_of_their_own_step():
    model = mixer("float32")
    optimizer = mb.optim.AdamW(model, lr=0.5)
    train(model, optimizer, range(2))
    moments, state = optimizer.moments, optimizer.state_dict()
    train(model, optimizer, range(1))
    assert list(moments) == [name for name in state if "." in name]
    for name, moment in moments.items():
        assert np.array_equal(moment, state[name]), name
    assert not np.array_equal(optimizer.moments[LAST], moments[LAST])
    assert list(mb.optim.SGD(model, lr=0.5).moments) == []
    with pytest.raises(KeyError, match="exp_avg"):
        moments["exp_avg"]


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


LAST = "exp_avg_sq.out_proj.weight"
BROKEN = {
    "no step": (lambda state: without(state, "step"), mb.StateDictError, "step is missing"),
    "no lr": (lambda state: without(state, "lr"), mb.StateDictError, "lr is missing"),
    "no moment": (lambda state: without(state, LAST), mb.StateDictError, f"{LAST} is missing"),
    "empty": (lambda state: {}, mb.StateDictError, "is missing"),
    "shape": (lambda state: {**state, LAST: np.zeros(3)}, mb.ShapeError, f"{LAST} must have shape"),
    "dtype": (lambda state: {**state, LAST: state[LAST].astype("float32")}, mb.DTypeError, f"{LAST} must be"),
    "beta": (lambda state: {**state, "beta1": 1.5}, mb.ConfigError, r"betas\[0\] must be"),
    "lr": (lambda state: {**state, "lr": np.nan}, mb.ConfigError, "lr must be"),
    "another scalar": (lambda state: {**state, "momentum": 0.9}, mb.StateDictError, "unexpected: momentum"),
    "another parameter": (
        lambda state: {**state, "exp_avg.E": np.zeros(3)},
        mb.StateDictError,
        r"unexpected: exp_avg\.E",
    ),
    "another moment": (
        lambda state: {**state, "max.D": np.zeros(4)},
        mb.StateDictError,
        r"unexpected: max\.D",
    ),
    "a negative step": (lambda state: {**state, "step": -1}, mb.StateDictError, "step must be a count"),
    "half a step": (lambda state: {**state, "step": 1.5}, mb.StateDictError, "step must be a count"),
    "an endless step": (lambda state: {**state, "step": 2**64}, mb.StateDictError, "step must be a count"),
    "no number": (lambda state: {**state, "eps": "tiny"}, mb.StateDictError, "eps must be a number"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_state_is_loaded_as_a_whole_or_not(broken):
    model = mixer()
    optimizer = mb.optim.AdamW(model)
    train(model, optimizer, range(2))
    before = optimizer.state_dict()
    change, error, message = BROKEN[broken]
    other = mixer(seed=4)
    source = mb.optim.AdamW(other, lr=0.5)
    train(other, source, range(3))
    with pytest.raises(error, match=message):
        optimizer.load_state_dict(change(source.state_dict()))
    assert_state_equal(optimizer.state_dict(), before)


def test_another_optimizers_state_is_not_loaded():
    states = {kind: make(mixer()).state_dict() for kind, make in MAKE.items()}
    with pytest.raises(mb.StateDictError, match="beta1 is missing"):
        MAKE["AdamW"](mixer()).load_state_dict(states["SGD"])
    with pytest.raises(mb.StateDictError, match="momentum is missing"):
        MAKE["SGD"](mixer()).load_state_dict(states["AdamW"])
    frozen = MAKE["AdamW"](mixer(), freeze=["D"])
    with pytest.raises(mb.StateDictError, match=r"unexpected: exp_avg\.D, exp_avg_sq\.D"):
        frozen.load_state_dict(states["AdamW"])
    with pytest.raises(mb.StateDictError, match=r"exp_avg\.D is missing"):
        MAKE["AdamW"](mixer()).load_state_dict(frozen.state_dict())
    with pytest.raises(mb.StateDictError, match=r"unexpected: exp_avg\.in_proj\.bias"):
        MAKE["AdamW"](mixer()).load_state_dict(MAKE["AdamW"](mixer(bias=True)).state_dict())
    assert states["momentum"].keys() > states["SGD"].keys()
    plain = MAKE["SGD"](mixer())
    plain.load_state_dict(states["momentum"])
    assert_state_equal(plain.state_dict(), states["momentum"])


@pytest.mark.parametrize("kind", MAKE)
def test_gradients_of_another_model_change_nothing(kind):
    model = mixer()
    optimizer = MAKE[kind](model)
    train(model, optimizer, range(2))
    before, state = model.state_dict(), optimizer.state_dict()
    for other, error in [
        (mixer(conv_bias=False), mb.MissingGradientError),
        (mixer(bias=True), mb.StateDictError),
        (mixer(d_state=5), mb.ShapeError),
        (mixer("float32"), mb.DTypeError),
    ]:
        with pytest.raises(error):
            optimizer.step(grads_of(other))
    for wrong in ({}, dict(grads_of(model)), None):
        with pytest.raises(TypeError, match="grads must be Gradients, got"):
            optimizer.step(wrong)
    assert_same(model.state_dict(), before)
    assert_state_equal(optimizer.state_dict(), state)


def test_a_missing_gradient_is_named():
    with pytest.raises(mb.MissingGradientError) as caught:
        mb.optim.AdamW(mixer(bias=True)).step(grads_of(mixer()))
    assert str(caught.value).startswith("2 of 10 parameters got no gradient: in_proj.bias, out_proj.bias.")


def test_two_optimizers_of_one_model_see_each_others_steps():
    model = mixer()
    first, second = mb.optim.SGD(model, freeze=["D"]), mb.optim.SGD(model, lr=1.0)
    before = model.state_dict()
    first.step(grads_of(model))
    second.step(grads_of(model))
    assert all(not np.array_equal(model.varmap[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -0.1}, "lr must be"),
        ({"lr": np.nan}, "lr must be"),
        ({"lr": np.inf}, "lr must be"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\] must be from 0 to below 1, got 1.0"),
        ({"betas": (0.9, -0.1)}, r"betas\[1\] must be"),
        ({"betas": (0.9,)}, "betas must be a pair of numbers"),
        ({"betas": 0.9}, "betas must be a pair of numbers"),
        ({"eps": -1e-8}, "eps must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"no_decay": "D"}, "no_decay must be a list of patterns"),
    ],
)
def test_hyperparameters_have_ranges(options, message):
    with pytest.raises(mb.ConfigError, match=message):
        mb.optim.AdamW(mixer(), **options)
    if not {"betas", "eps"} & set(options):
        with pytest.raises(mb.ConfigError, match=message):
            mb.optim.SGD(mixer(), **options)


def test_nesterov_needs_momentum():
    with pytest.raises(mb.ConfigError, match="nesterov must be False where momentum is 0"):
        mb.optim.SGD(mixer(), nesterov=True)
    with pytest.raises(mb.ConfigError, match="momentum must be"):
        mb.optim.SGD(mixer(), momentum=-0.5)


def test_betas_may_be_any_pair():
    assert mb.optim.AdamW(mixer(), betas=[0.5, np.float32(0.25)]).state_dict()["beta2"] == 0.25


@pytest.mark.parametrize("wrong", [None, "model", {}, mixer().varmap])
def test_only_a_model_is_optimized(wrong):
    for kind in (mb.optim.AdamW, mb.optim.SGD):
        with pytest.raises(TypeError, match="model must be"):
            kind(wrong)


@pytest.mark.parametrize("kind", MAKE)
def test_training_lowers_the_loss(kind):
    model, x, target = forecaster("float32"), noise(8, 20, 3, dtype="float32"), noise(8, 2, dtype="float32")
    optimizer = MAKE[kind](model, lr=0.02)
    losses = []
    for _ in range(30):
        loss = model.forward(x).mse_loss(target)
        losses.append(loss.item())
        optimizer.step(loss.backward())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "options",
    [{"lr": "a"}, {"lr": None}, {"eps": True}, {"freeze": None}, {"no_decay": "D"}, {"freeze": [3]}],
    ids=str,
)
def test_an_option_of_another_kind_is_named(options):
    with pytest.raises(mb.ConfigError, match=f"^{next(iter(options))} must be"):
        mb.optim.AdamW(mixer(), **options)
