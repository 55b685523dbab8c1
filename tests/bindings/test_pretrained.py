"""A model as a folder: configuration and parameters, replaced as a whole, nothing foreign touched."""

import json
import math
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mamba2_bridge as mb
from native_models import DTYPES, OPTIONS, assert_same, forecaster, mixer, noise


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_mixer_comes_back_as_it_was(option, dtype, tmp_path):
    model = mixer(dtype, **OPTIONS[option])
    model.save_pretrained(tmp_path / "model")
    again = mb.Mamba2.from_pretrained(tmp_path / "model", dtype=dtype)
    assert again.config == model.config
    assert again.dtype == dtype
    assert_same(again.state_dict(), model.state_dict())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_forecaster_comes_back_as_it_was(dtype, tmp_path):
    model = forecaster(dtype, n_layer=3, ngroups=2, dt_limit=(0.001, math.inf))
    model.save_pretrained(str(tmp_path / "model"))
    again = mb.Mamba2Forecaster.from_pretrained(str(tmp_path / "model"), dtype=dtype)
    assert again.config == model.config
    assert_same(again.state_dict(), model.state_dict())
    x = noise(2, 5, 3, dtype=dtype)
    assert np.array_equal(again(x), model(x))


def test_the_default_dtype_is_float32(tmp_path):
    mixer("float64").save_pretrained(tmp_path / "model")
    again = mb.Mamba2.from_pretrained(tmp_path / "model")
    assert again.dtype == "float32"
    want = {name: value.astype("float32") for name, value in mixer("float64").state_dict().items()}
    assert_same(again.state_dict(), want)


def test_float32_is_widened_exactly(tmp_path):
    model = mixer("float32")
    model.save_pretrained(tmp_path / "model")
    again = mb.Mamba2.from_pretrained(tmp_path / "model", dtype="float64")
    assert_same(
        again.state_dict(), {name: value.astype("float64") for name, value in model.state_dict().items()}
    )


def test_the_configuration_is_plain_json(tmp_path):
    mixer(dt_limit=(0.0, math.inf)).save_pretrained(tmp_path / "model")
    text = (tmp_path / "model" / "config.json").read_text()
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert values["format"] == "mamba2_bridge"
    assert values["model_class"] == "Mamba2"
    assert values["d_model"] == 8
    assert values["dt_limit"] == [0.0, {"__float__": "Infinity"}]
    assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "model.safetensors"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "deep" / "model"
    mixer().save_pretrained(folder)
    forecaster().save_pretrained(folder)
    assert mb.Mamba2Forecaster.from_pretrained(folder).config == forecaster().config
    assert os.listdir(folder.parent) == ["model"]
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]


def test_an_empty_folder_is_filled(tmp_path):
    mixer().save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


def test_the_umask_decides_who_may_read_a_folder(tmp_path):
    before = os.umask(0o027)
    try:
        mixer().save_pretrained(tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o750
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "model" / name).stat().st_mode & 0o777 == 0o640


FOREIGN = {
    "files": {"thesis.tex": "years of work"},
    "another program's config.json": {"config.json": "{}", "thesis.tex": "years of work"},
    "another library's model": {"config.json": '{"model_type": "mamba2"}', "model.safetensors": ""},
    "a config.json that is no JSON": {"config.json": "format: mamba2_bridge"},
    "a list": {"config.json": '["format", "mamba2_bridge"]'},
    "weights alone": {"model.safetensors": ""},
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_folder_is_not_replaced(foreign, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in FOREIGN[foreign].items():
        (folder / name).write_text(text)
    with pytest.raises(mb.CheckpointError, match="holds no model of mamba2_bridge: it is not replaced"):
        mixer().save_pretrained(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == FOREIGN[foreign]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_is_not_replaced(tmp_path):
    (tmp_path / "file").write_text("years of work")
    with pytest.raises(mb.CheckpointError, match="it is not replaced"):
        mixer().save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "years of work"


def test_a_failure_leaves_the_old_folder(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    mixer(seed=1).save_pretrained(folder)
    model = mixer(seed=2)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model.varmap), "save", fail)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(folder)
    assert_same(mb.Mamba2.from_pretrained(folder, dtype="float64").state_dict(), mixer(seed=1).state_dict())
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        mb.Mamba2.from_pretrained(tmp_path / "nothing")
    mixer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        mb.Mamba2.from_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        mb.Mamba2.from_pretrained(tmp_path / "model")


def test_a_folder_of_another_class_is_refused(tmp_path):
    mixer().save_pretrained(tmp_path / "mixer")
    forecaster().save_pretrained(tmp_path / "forecaster")
    with pytest.raises(mb.CheckpointError, match=r"config\.json: holds a Mamba2, not a Mamba2Forecaster"):
        mb.Mamba2Forecaster.from_pretrained(tmp_path / "mixer")
    with pytest.raises(mb.CheckpointError, match=r"config\.json: holds a Mamba2Forecaster, not a Mamba2"):
        mb.Mamba2.from_pretrained(tmp_path / "forecaster")


CONFIGS = {
    "empty": ("", "not a JSON file"),
    "no JSON": ("d_model: 8", "not a JSON file"),
    "no text": (b"\xff\xfe\x00", "not a JSON file"),
    "a list": ("[]", "not a configuration that mamba2_bridge wrote"),
    "of HuggingFace": ('{"model_type": "mamba2"}', "not a configuration that mamba2_bridge wrote"),
}


@pytest.mark.parametrize("damage", CONFIGS)
def test_a_config_json_that_is_none(damage, tmp_path):
    mixer().save_pretrained(tmp_path / "model")
    contents, message = CONFIGS[damage]
    (tmp_path / "model" / "config.json").write_bytes(
        contents if isinstance(contents, bytes) else contents.encode()
    )
    with pytest.raises(mb.CheckpointError, match=rf"config\.json: {message}"):
        mb.Mamba2.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_state": 0}, "d_state must be at least 1, got 0"),
        ({"headdim": "4"}, "headdim must be an integer"),
        ({"dt_limit": [0.0]}, "dt_limit must be a pair"),
        ({"dt_limit": [0.0, {"__float__": "much"}]}, "much"),
        ({"colour": 1}, "Mamba2Config has no field 'colour'"),
    ],
)
def test_a_configuration_that_breaks_a_rule(changes, message, tmp_path):
    mixer().save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(mb.CheckpointError, match=rf"config\.json: .*{message}"):
        mb.Mamba2.from_pretrained(tmp_path / "model")


def test_a_configuration_that_does_not_describe_the_weights(tmp_path):
    mixer().save_pretrained(tmp_path / "model")
    mixer(bias=True).varmap.save(tmp_path / "model" / "model.safetensors")
    with pytest.raises(mb.StateDictError, match=r"^unexpected: in_proj\.bias, out_proj\.bias"):
        mb.Mamba2.from_pretrained(tmp_path / "model")
    mixer(d_state=5).varmap.save(tmp_path / "model" / "model.safetensors")
    with pytest.raises(mb.StateDictError, match=r"has shape .*, the model needs"):
        mb.Mamba2.from_pretrained(tmp_path / "model")


def test_weights_that_are_damaged_or_not_finite(tmp_path):
    folder = tmp_path / "model"
    model = mixer()
    model.varmap.update({"D": np.full(4, np.nan)}, allow_nonfinite=True)
    model.save_pretrained(folder)
    with pytest.raises(mb.CheckpointError, match="D holds 4 NaN or infinite values"):
        mb.Mamba2.from_pretrained(folder)
    again = mb.Mamba2.from_pretrained(folder, dtype="float64", allow_nonfinite=True)
    assert_same(again.state_dict(), model.state_dict())
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(mb.CheckpointError, match="not a sound safetensors file"):
        mb.Mamba2.from_pretrained(folder)


def test_weights_that_overflow_float32_are_refused(tmp_path):
    model = mixer()
    model.varmap["D"] = np.full(4, 1e300)
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(mb.CheckpointError, match="D holds 4 NaN or infinite values"):
        mb.Mamba2.from_pretrained(tmp_path / "model", dtype="float32")


@pytest.mark.parametrize("stored", ["float16", "int64", "uint8"])
def test_only_floats_are_taken_as_weights(stored, tmp_path):
    mixer().save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    save_file({**load_file(path), "D": np.arange(4).astype(stored)}, path)
    if stored == "float16":
        assert mb.Mamba2.from_pretrained(tmp_path / "model").varmap["D"].tolist() == [0, 1, 2, 3]
        return
    with pytest.raises(mb.DTypeError, match="D must be float32, got"):
        mb.Mamba2.from_pretrained(tmp_path / "model")


def test_a_link_to_a_model_leads_to_the_new_one(tmp_path):
    mixer(seed=1).save_pretrained(tmp_path / "run")
    (tmp_path / "latest").symlink_to("run")
    mixer(seed=2).save_pretrained(tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    loaded = mb.Mamba2.from_pretrained(tmp_path / "run", "float64")
    assert_same(loaded.state_dict(), mixer(seed=2).state_dict())


@pytest.mark.parametrize("infinity", ['{"__float__": "Infinity"}', "Infinity", "null"])
def test_infinity_is_read_in_every_way_it_is_written(tmp_path, infinity):
    mixer().save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["dt_limit"] = [0.0, "here"]
    path.write_text(json.dumps(config).replace('"here"', infinity))
    assert mb.Mamba2.from_pretrained(tmp_path / "model", "float64").config.dt_limit == (0.0, math.inf)
