"""Configurations: frozen, with a rule for every field, there and back as a dict."""

import dataclasses
import json
import math
import pickle
import re

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import OPTIONS, config

DEFAULTS = {
    "d_model": 256,
    "d_state": 128,
    "d_conv": 4,
    "expand": 2,
    "headdim": 64,
    "d_ssm": None,
    "ngroups": 1,
    "norm_groups": None,
    "A_init_range": (1, 16),
    "conv_init": None,
    "D_has_hdim": False,
    "rmsnorm": True,
    "norm_before_gate": False,
    "dt_min": 1e-3,
    "dt_max": 1e-1,
    "dt_init_floor": 1e-4,
    "dt_limit": (0.0, math.inf),
    "bias": False,
    "conv_bias": True,
    "norm_eps": 1e-5,
    "chunk_size": 256,
}
COUNTS = ["d_model", "d_state", "d_conv", "expand", "headdim", "ngroups", "chunk_size"]
OPTIONAL_COUNTS = ["d_ssm", "norm_groups"]
NUMBERS = ["dt_min", "dt_max", "dt_init_floor", "norm_eps"]
PAIRS = ["A_init_range", "dt_limit"]
FLAGS = ["D_has_hdim", "rmsnorm", "norm_before_gate", "bias", "conv_bias"]


def refused(field, value, **others):
    """The message with which a value of a field is refused; it names both."""
    with pytest.raises(mb.ConfigError) as caught:
        mb.Mamba2Config(**{"d_model": 256, **others, field: value})
    message = str(caught.value)
    assert re.match(rf"{field} must be .+, got ", message), message
    return message


def test_every_field_is_tried_here():
    assert {*COUNTS, *OPTIONAL_COUNTS, *NUMBERS, *PAIRS, *FLAGS, "conv_init"} == set(DEFAULTS)


def test_names_order_and_defaults_are_the_contracts():
    assert mb.Mamba2Config(256).to_dict() == DEFAULTS
    assert list(mb.Mamba2Config(256).to_dict()) == list(DEFAULTS)


def test_sizes_follow():
    cfg = mb.Mamba2Config(d_model=24, expand=3, headdim=4, d_ssm=48, ngroups=2, d_state=5)
    assert (cfg.d_inner, cfg.nheads, cfg.conv_dim) == (72, 12, 48 + 2 * 2 * 5)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(mb.Mamba2Config)])
def test_a_configuration_is_frozen(field):
    cfg = config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cfg, field, getattr(cfg, field))


def test_equal_configurations_are_equal_and_hash_alike():
    assert config() == config() != config(bias=True)
    assert len({config(), config(), config(bias=True)}) == 2
    assert mb.Mamba2Config(np.int64(256), dt_min=np.float64(1e-3)) == mb.Mamba2Config(256)


@pytest.mark.parametrize("option", OPTIONS)
def test_to_dict_and_back(option):
    cfg = config(**OPTIONS[option])
    assert mb.Mamba2Config.from_dict(cfg.to_dict()) == cfg
    assert mb.Mamba2Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg
    assert pickle.loads(pickle.dumps(cfg)) == cfg
    assert dataclasses.replace(cfg, chunk_size=5).chunk_size == 5


def test_a_forecasters_configuration_to_dict_and_back():
    cfg = mb.Mamba2ForecasterConfig(mixer=config(ngroups=2), n_layer=3, d_input=2, d_output=1)
    assert cfg.to_dict()["mixer"] == config(ngroups=2).to_dict()
    assert mb.Mamba2ForecasterConfig.from_dict(cfg.to_dict()) == cfg
    assert pickle.loads(pickle.dumps(cfg)) == cfg


def test_to_dict_is_a_copy_of_plain_values():
    cfg = mb.Mamba2Config(np.int32(256), bias=np.True_, dt_min=np.float32(0.5), dt_max=1)
    values = cfg.to_dict()
    assert {type(value) for value in values.values()} == {int, float, bool, tuple, type(None)}
    values["d_model"] = 1
    assert cfg.d_model == 256


def test_from_dict_refuses_what_does_not_belong():
    with pytest.raises(mb.ConfigError, match="Mamba2Config has no field 'dmodel'"):
        mb.Mamba2Config.from_dict({"d_model": 256, "dmodel": 1})
    with pytest.raises(mb.ConfigError, match="Mamba2Config needs d_model"):
        mb.Mamba2Config.from_dict({})
    with pytest.raises(mb.ConfigError, match="Mamba2Config is made from a mapping, got NoneType"):
        mb.Mamba2Config.from_dict(None)
    with pytest.raises(
        mb.ConfigError, match="Mamba2ForecasterConfig needs mixer, n_layer, d_input, d_output"
    ):
        mb.Mamba2ForecasterConfig.from_dict({})
    with pytest.raises(mb.ConfigError, match="headdim must be"):
        mb.Mamba2Config.from_dict({"d_model": 256, "headdim": 0})


@pytest.mark.parametrize(
    "value", [0, -1, 2**63, 2**100, 1.0, 8.5, math.nan, "8", None, True, np.True_, [8], 1j]
)
@pytest.mark.parametrize("field", COUNTS)
def test_a_count_is_an_integer_of_at_least_one(field, value):
    assert re.search(r"at least 1|below 2\*\*63", refused(field, value))


@pytest.mark.parametrize("value", [0, -1, 2**63, 1.0, "8", False, np.False_])
@pytest.mark.parametrize("field", OPTIONAL_COUNTS)
def test_an_optional_count_is_none_or_an_integer(field, value):
    refused(field, value)


@pytest.mark.parametrize("integer", [int, np.int8, np.uint64, np.array])
def test_any_integer_type_is_a_count(integer):
    cfg = mb.Mamba2Config(integer(16), headdim=integer(8), d_ssm=integer(16), chunk_size=integer(7))
    assert (cfg.d_model, cfg.headdim, cfg.d_ssm, cfg.chunk_size) == (16, 8, 16, 7)
    assert type(cfg.d_model) is int


@pytest.mark.parametrize(
    "value", [0.0, -1e-9, math.nan, math.inf, -math.inf, "1", None, True, np.True_, [1.0], 1j]
)
@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_is_positive(field, value):
    refused(field, value)


def test_the_largest_step_is_no_smaller_than_the_smallest():
    assert refused("dt_max", 0.01, dt_min=0.02) == "dt_max must be finite and at least dt_min=0.02, got 0.01"
    assert mb.Mamba2Config(256, dt_min=0.02, dt_max=0.02).dt_max == 0.02


@pytest.mark.parametrize("value", [0.0, -0.5, math.nan, math.inf, "1", True])
def test_conv_init_is_none_or_positive(value):
    assert refused("conv_init", value).startswith("conv_init must be None or a")


@pytest.mark.parametrize(
    "value",
    [(0, 1), (-1, 1), (2, 1), (1, math.inf), (math.nan, 1), (1, math.nan), (1,), (1, 2, 3), 1, None, "12"],
)
def test_the_range_of_a_is_positive_and_ordered(value):
    refused("A_init_range", value)


@pytest.mark.parametrize(
    "value",
    [
        (-1e-9, 1),
        (2, 1),
        (math.inf, math.inf),
        (math.nan, 1),
        (0, math.nan),
        (0,),
        (1, 2, 3),
        0,
        None,
        (True, 2),
    ],
)
def test_the_limits_of_dt_are_ordered_from_zero(value):
    refused("dt_limit", value)


@pytest.mark.parametrize("pair", [(1, 2), [1, 2], np.array([1, 2]), np.array([1.0, 2.0], "float32")])
@pytest.mark.parametrize("field", PAIRS)
def test_any_two_numbers_are_a_pair(field, pair):
    value = getattr(config(**{field: pair}), field)
    assert value == (1.0, 2.0)
    assert [type(number) for number in value] == [float, float]


def test_a_pair_may_be_one_point():
    assert config(dt_limit=(0.1, 0.1), A_init_range=(2, 2)).dt_limit == (0.1, 0.1)


@pytest.mark.parametrize("value", [0, 1, None, "True", 1.0, [True], np.array([True])])
@pytest.mark.parametrize("field", FLAGS)
def test_a_flag_is_true_or_false(field, value):
    assert refused(field, value).startswith(f"{field} must be True or False, got ")


@pytest.mark.parametrize("field", FLAGS)
def test_numpys_booleans_are_flags(field):
    assert getattr(config(**{field: np.True_}), field) is True
    assert getattr(config(**{field: np.False_}), field) is False


@pytest.mark.parametrize(
    ("field", "value", "others", "rule"),
    [
        ("headdim", 7, {}, "a divisor of d_ssm=512"),
        ("headdim", 1024, {}, "a divisor of d_ssm=512"),
        ("headdim", 64, {"d_ssm": 32}, "a divisor of d_ssm=32"),
        ("ngroups", 3, {}, "a divisor of nheads=8"),
        ("ngroups", 16, {}, "a divisor of nheads=8"),
        ("norm_groups", 3, {}, "a divisor of d_ssm=512"),
        ("d_ssm", 513, {}, "from 1 to d_inner=512"),
        ("d_ssm", 100, {"headdim": 50, "expand": 1, "d_model": 99}, "from 1 to d_inner=99"),
    ],
)
def test_sizes_must_divide(field, value, others, rule):
    assert refused(field, value, **others) == f"{field} must be {rule}, got {value}"


@pytest.mark.parametrize("field", ["d_model", "d_state", "d_conv", "expand"])
def test_sizes_that_overflow_name_the_size_that_is_too_large(field):
    assert refused(field, 2**60, **({"headdim": 2**20} if field in ("d_model", "expand") else {})) == (
        f"{field} must be smaller: a size overflows, got {2**60}"
    )


def test_a_chunk_may_be_of_any_size():
    assert config(chunk_size=2**62).chunk_size == 2**62


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "1", 2**63])
@pytest.mark.parametrize("field", ["n_layer", "d_input", "d_output"])
def test_a_forecasters_counts_are_integers_of_at_least_one(field, value):
    fields = {"mixer": config(), "n_layer": 1, "d_input": 1, "d_output": 1, field: value}
    with pytest.raises(mb.ConfigError, match=rf"^{field} must be .+, got {re.escape(repr(value))}$"):
        mb.Mamba2ForecasterConfig(**fields)


@pytest.mark.parametrize(
    ("field", "value"), [("n_layer", 1001), ("n_layer", 2**40), ("d_input", 2**62), ("d_output", 2**62)]
)
def test_a_forecasters_sizes_are_bounded(field, value):
    fields = {"mixer": config(), "n_layer": 1, "d_input": 1, "d_output": 1, field: value}
    with pytest.raises(mb.ConfigError, match=rf"^{field} must be .+, got {value}$"):
        mb.Mamba2ForecasterConfig(**fields)


def test_a_forecasters_mixer_is_a_configuration_or_its_fields():
    fields = {"n_layer": 1, "d_input": 1, "d_output": 1}
    assert mb.Mamba2ForecasterConfig(mixer=config().to_dict(), **fields).mixer == config()
    with pytest.raises(mb.ConfigError, match="mixer must be a Mamba2Config, got 3"):
        mb.Mamba2ForecasterConfig(mixer=3, **fields)
    with pytest.raises(mb.ConfigError, match="d_state must be"):
        mb.Mamba2ForecasterConfig(mixer={"d_model": 256, "d_state": 0}, **fields)
