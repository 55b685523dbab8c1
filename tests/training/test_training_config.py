"""TrainConfig: every field is checked, and a file gives back what was written."""

from __future__ import annotations

import json

import pytest

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.training import TrainConfig


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("window", 1, "2 or more"),
        ("window", 6.5, "whole number"),
        ("horizon", 0, "1 or more"),
        ("d_model", True, "whole number"),
        ("steps", "10", "whole number"),
        ("patience", -1, "0 or more"),
        ("period", 0, "1 or more"),
        ("calendar", -1, "0 or more"),
        ("validation", 0.0, "between 0 and 1"),
        ("test", 1.0, "between 0 and 1"),
        ("lr", 0, "above 0"),
        ("lr", float("nan"), "above 0"),
        ("lr", "fast", "above 0"),
        ("final_lr", 2.0, "from 0 to 1"),
        ("weight_decay", -0.1, "0 or more"),
        ("clip", float("inf"), "0 or more"),
        ("average", 1.0, "from 0 to below 1"),
        ("normalise", "both", "'train' or 'window'"),
        ("missing", "drop", "'error' or 'interpolate'"),
        ("schedule", "linear", "'constant' or 'cosine'"),
        ("dtype", "float16", "'float32' or 'float64'"),
        ("features", "heat", "sequence of column names"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_rule(field, value, rule):
    with pytest.raises(ConfigError) as error:
        TrainConfig("y", **{field: value})
    assert field in str(error.value)
    assert repr(value) in str(error.value) or str(value) in str(error.value)
    assert rule in str(error.value)


def test_shares_that_leave_nothing_to_train_on_are_refused():
    with pytest.raises(ConfigError, match=r"below 1.*0\.5 \+ 0\.5"):
        TrainConfig("y", validation=0.5, test=0.5)


def test_a_config_survives_a_file():
    config = TrainConfig("y", features=["a", "b"], period=12, lr=1e-4)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "word"), [({"target": "y", "widow": 3}, "widow"), ({"window": 3}, "needs a target")]
)
def test_a_file_that_does_not_fit_is_refused(values, word):
    with pytest.raises(ConfigError, match=word):
        TrainConfig.from_dict(values)
