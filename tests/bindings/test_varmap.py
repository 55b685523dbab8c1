"""The VarMap as a mapping: reading copies, setting checks, all or nothing."""

from collections import OrderedDict
from collections.abc import MutableMapping

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, assert_same, forecaster, mixer, noise


@pytest.mark.parametrize(
    "model", [mixer(), mixer("float32"), forecaster()], ids=["mixer", "float32", "forecaster"]
)
def test_it_is_a_mutable_mapping(model):
    varmap = model.varmap
    assert isinstance(varmap, MutableMapping)
    assert varmap is model.varmap
    names = list(varmap)
    assert len(varmap) == len(names) == len(set(names))
    assert list(varmap.keys()) == names
    assert [name for name, _ in varmap.items()] == names
    assert all(name in varmap for name in names)
    assert all(np.array_equal(varmap.get(name), varmap[name]) for name in names)
    assert varmap.get("nothing") is None
    assert varmap.setdefault(names[0], 0).shape == varmap[names[0]].shape
    assert repr(varmap).startswith(f"VarMap({names[0]}: (")


@pytest.mark.parametrize("name", ["", "E", "D ", "d", "mixer.D", 3, None, ("D",)])
def test_a_name_that_there_is_not(name):
    model = mixer()
    before = model.state_dict()
    assert name not in model.varmap
    with pytest.raises(KeyError):
        model.varmap[name]
    with pytest.raises(mb.StateDictError, match="unexpected: .*nothing was loaded"):
        model.varmap[name] = np.ones(4)
    with pytest.raises(mb.StateDictError):
        model.varmap.setdefault(name, np.ones(4))
    with pytest.raises(KeyError):
        model.varmap.pop(name)
    assert_same(model.state_dict(), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_parameter_can_be_set_and_read(dtype):
    model = mixer(dtype, bias=True)
    for name in model.varmap:
        value = noise(*model.varmap[name].shape, dtype=dtype)
        model.varmap[name] = value
        assert_same({name: model.varmap[name]}, {name: value})


def test_parameters_can_not_be_removed():
    model = mixer()
    before = model.state_dict()
    with pytest.raises(TypeError, match="D: parameters can be set, not removed"):
        del model.varmap["D"]
    for remove in (model.varmap.clear, model.varmap.popitem, lambda: model.varmap.pop("D")):
        with pytest.raises(TypeError, match="parameters can be set, not removed"):
            remove()
    with pytest.raises(AttributeError):
        model.varmap = {}
    assert_same(model.state_dict(), before)


def test_update_takes_what_a_dicts_update_takes():
    model = mixer()
    model.varmap.update({"D": noise(4, seed=1)}, A_log=noise(4, seed=2))
    model.varmap.update([("dt_bias", noise(4, seed=3))])
    model.varmap.update(D=noise(4, seed=4))
    model.varmap.update(OrderedDict(A_log=noise(4, seed=5)))
    model.varmap.update()
    model.varmap.update({})
    got = {name: model.varmap[name] for name in ("D", "A_log", "dt_bias")}
    assert_same(got, {"D": noise(4, seed=4), "A_log": noise(4, seed=5), "dt_bias": noise(4, seed=3)})
    other = mixer(seed=1)
    other.varmap.update(model.varmap)
    assert_same(other.state_dict(), model.state_dict())


WRONG = {
    "unknown name": ({"E": np.ones(4)}, mb.StateDictError, "unexpected: E; nothing was loaded"),
    "shape": (
        {"dt_bias": np.ones(5)},
        mb.StateDictError,
        r"dt_bias has shape \(5,\), the model needs \(4,\)",
    ),
    "no broadcasting": (
        {"dt_bias": np.ones(())},
        mb.StateDictError,
        r"dt_bias has shape \(\), the model needs",
    ),
    "same size": (
        {"conv1d.weight": np.ones((24, 4))},
        mb.StateDictError,
        r"conv1d\.weight has shape \(24, 4\)",
    ),
    "dtype": ({"dt_bias": np.ones(4, "float32")}, mb.DTypeError, "dt_bias must be float64, got float32"),
    "integers": ({"dt_bias": [1, 1, 1, 1]}, mb.DTypeError, "dt_bias must be .*, got int64"),
    "NaN": ({"dt_bias": np.array([0, np.nan, 0, 0])}, ValueError, "dt_bias holds 1 NaN or infinite values"),
    "infinity": ({"dt_bias": np.full(4, -np.inf)}, ValueError, "dt_bias holds 4 NaN or infinite values"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_wrong_value_sets_nothing(wrong, place):
    model = mixer()
    before = model.state_dict()
    values, error, message = WRONG[wrong]
    right = {"D": np.zeros(4), "A_log": np.zeros(4)}
    given = {**values, **right} if place == "first" else {**right, **values}
    with pytest.raises(error, match=message) as caught:
        model.varmap.update(given)
    assert isinstance(caught.value, mb.Mamba2BridgeError)
    with pytest.raises(error, match=message):
        model.load_state_dict(given, strict=False) if wrong != "unknown name" else model.load_state_dict(
            given
        )
    assert_same(model.state_dict(), before)


def test_nan_and_infinity_where_they_are_allowed():
    model = mixer()
    model.varmap.update({"D": np.full(4, np.nan), "A_log": np.full(4, np.inf)}, allow_nonfinite=True)
    assert np.isnan(model.varmap["D"]).all()
    assert np.isposinf(model.varmap["A_log"]).all()


def test_a_parameter_is_set_from_itself():
    model = mixer()
    before = model.state_dict()
    model.varmap.update({name: model.varmap[name] for name in model.varmap})
    model.varmap["in_proj.weight"] = model.varmap["in_proj.weight"][::-1]
    assert np.array_equal(model.varmap["in_proj.weight"], before["in_proj.weight"][::-1])
