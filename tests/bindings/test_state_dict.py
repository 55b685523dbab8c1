"""state_dict and load_state_dict: strict or not, all or nothing."""

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, OPTIONS, assert_same, forecaster, mixer, noise, run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_model_made_from_anothers_parameters_is_that_model(option, dtype):
    model, other = mixer(dtype, **OPTIONS[option]), mixer(dtype, seed=7, **OPTIONS[option])
    assert other.load_state_dict(model.state_dict()) == ([], [])
    u = noise(2, 20, 8, dtype=dtype)
    assert_same(other.state_dict(), model.state_dict())
    assert_same(run(other, u), run(model, u))


def test_it_is_a_dict_of_copies_in_the_models_order():
    model = mixer()
    values = model.state_dict()
    assert type(values) is dict
    assert list(values) == list(model.varmap)
    values["D"].fill(np.nan)
    del values["A_log"]
    assert np.isfinite(model.state_dict()["D"]).all()


def test_strict_wants_exactly_the_models_names():
    model = mixer()
    before = model.state_dict()
    given = {**mixer(seed=1).state_dict(), "E": np.ones(4), "F": np.ones(4)}
    del given["D"], given["A_log"]
    with pytest.raises(mb.StateDictError) as caught:
        model.load_state_dict(given)
    assert str(caught.value) == "missing: A_log, D; unexpected: E, F; nothing was loaded"
    assert isinstance(caught.value, KeyError)
    with pytest.raises(mb.StateDictError, match=r"^missing: in_proj.weight, "):
        model.load_state_dict({})
    assert_same(model.state_dict(), before)


def test_not_strict_sets_what_fits_and_reports_the_rest():
    model, source = mixer(), mixer(seed=1).state_dict()
    before = model.state_dict()
    result = model.load_state_dict({"E": np.ones(4), "dt_bias": source["dt_bias"]}, strict=False)
    assert result.missing_keys == [name for name in before if name != "dt_bias"]
    assert result.unexpected_keys == ["E"]
    assert tuple(result) == (result.missing_keys, result.unexpected_keys)
    assert_same(model.state_dict(), {**before, "dt_bias": source["dt_bias"]})
    assert model.load_state_dict({}, strict=False) == (list(before), [])


def test_not_strict_is_strict_about_shapes_dtypes_and_numbers():
    model = mixer()
    before = model.state_dict()
    for wrong in (np.ones(5), np.ones(4, "float32"), np.full(4, np.nan)):
        with pytest.raises((mb.StateDictError, mb.DTypeError, ValueError)):
            model.load_state_dict({"D": np.zeros(4), "dt_bias": wrong}, strict=False)
    assert_same(model.state_dict(), before)


def test_names_are_strings():
    model = mixer()
    before = model.state_dict()
    for name in (3, None, b"D"):
        with pytest.raises((TypeError, mb.StateDictError)):
            model.load_state_dict({**before, name: np.ones(4)}, strict=False)
    assert_same(model.state_dict(), before)


def test_another_models_parameters_are_not_loaded():
    for source, target in [
        (mixer(bias=True), mixer()),
        (mixer(), mixer(bias=True)),
        (mixer(d_state=5), mixer()),
        (forecaster(n_layer=3), forecaster()),
        (forecaster(), forecaster(n_layer=3)),
        (mixer(), forecaster()),
    ]:
        before = target.state_dict()
        with pytest.raises(mb.StateDictError):
            target.load_state_dict(source.state_dict())
        assert_same(target.state_dict(), before)


def test_nan_only_where_it_is_allowed():
    model = mixer()
    given = {**model.state_dict(), "D": np.full(4, np.nan)}
    with pytest.raises(ValueError, match=r"^D holds 4 NaN"):
        model.load_state_dict(given)
    assert model.load_state_dict(given, allow_nonfinite=True) == ([], [])
    assert np.isnan(model.varmap["D"]).all()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("values", "words"), [(None, "a mapping"), ({3: 1.0}, "names must be strings, got 3")]
)
def test_what_is_no_mapping_from_names_is_refused(values, words, strict):
    with pytest.raises(mb.StateDictError, match=words):
        mixer().load_state_dict(values, strict)
