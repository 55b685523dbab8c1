"""safetensors files: written whole, read whole, or a clear error and nothing changed."""

import json
import os
import stat
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import mamba2_bridge as mb
from native_models import DTYPES, assert_same, forecaster, mixer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [mixer, forecaster])
def test_saved_and_loaded_bit_exactly(make, dtype, tmp_path):
    model, other = make(dtype), make(dtype, seed=7)
    path = tmp_path / "model.safetensors"
    assert model.varmap.save(path) is None
    assert other.varmap.load(path) == ([], [])
    assert_same(other.state_dict(), model.state_dict())


def test_others_can_read_the_file_and_we_read_theirs(tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    model.varmap.save(str(path))
    assert_same(dict(sorted(load_file(path).items())), dict(sorted(model.state_dict().items())))
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "mamba2_bridge"}
    values = mixer(seed=3).state_dict()
    save_file(values, path, metadata={"written by": "somebody else"})
    model.varmap.load(str(path))
    assert_same(model.state_dict(), values)


def test_a_file_is_the_same_whenever_it_is_written(tmp_path):
    for name in ("first", "second"):
        mixer().varmap.save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def write_header(path, header, data=b""):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def overlapping(path, model):
    write_header(
        path,
        {name: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]} for name in ("A_log", "D")},
        bytes(8),
    )


DAMAGED = {
    "empty": lambda path, model: path.write_bytes(b""),
    "half a length": lambda path, model: path.write_bytes(b"\x08\0\0"),
    "no header": lambda path, model: path.write_bytes(struct.pack("<Q", 100)),
    "an endless header": lambda path, model: path.write_bytes(struct.pack("<Q", 2**63) + b"{}"),
    "header that is no JSON": lambda path, model: path.write_bytes(struct.pack("<Q", 4) + b"{no}"),
    "text": lambda path, model: path.write_text(
        "not a model, but long enough to have a length of its own\n" * 9
    ),
    "pickle": lambda path, model: path.write_bytes(b"\x80\x04\x95" + bytes(64)),
    "missing data": lambda path, model: write_header(
        path, {"D": {"dtype": "F64", "shape": [4], "data_offsets": [0, 32]}}
    ),
    "shape unlike its data": lambda path, model: write_header(
        path, {"D": {"dtype": "F64", "shape": [5], "data_offsets": [0, 32]}}, bytes(32)
    ),
    "a shape that overflows": lambda path, model: write_header(
        path, {"D": {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 0]}}
    ),
    "overlapping": overlapping,
    "unknown dtype": lambda path, model: write_header(
        path, {"D": {"dtype": "F99", "shape": [4], "data_offsets": [0, 32]}}, bytes(32)
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("strict", [True, False])
def test_a_damaged_or_foreign_file_is_named(damage, strict, tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    DAMAGED[damage](path, model)
    before = model.state_dict()
    with pytest.raises(mb.CheckpointError, match=r"model\.safetensors: not a sound safetensors file"):
        model.varmap.load(path, strict=strict)
    assert_same(model.state_dict(), before)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.1, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_refused(kept, tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    model.varmap.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(mb.CheckpointError, match="not a sound safetensors file"):
        mixer(seed=1).varmap.load(path)


def test_a_file_that_can_not_be_read(tmp_path):
    model = mixer()
    before = model.state_dict()
    with pytest.raises(FileNotFoundError) as caught:
        model.varmap.load(tmp_path / "nothing")
    assert caught.value.filename == str(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        model.varmap.load(tmp_path)
    with pytest.raises(TypeError):
        model.varmap.load(3)
    if os.geteuid() != 0:
        (tmp_path / "locked").touch(mode=0)
        with pytest.raises(PermissionError):
            model.varmap.load(tmp_path / "locked")
    assert_same(model.state_dict(), before)


def test_what_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(mb.CheckpointError, match="not a regular file"):
            mixer().varmap.load(path)


def test_a_file_larger_than_the_memory(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        try:
            file.truncate(1 << 43)  # takes no room on the disk
        except OSError:
            pytest.skip("the file system holds no file of this size")
    with pytest.raises(MemoryError, match=r"model\.safetensors"):
        mixer().varmap.load(path)


@pytest.mark.parametrize("name", [b"m\xc3\xb6del", b"m\xf6del", b"a b\nc", b"a'\"%s{}"])
def test_a_file_may_have_any_name(name, tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(name))
    with pytest.raises(FileNotFoundError) as caught:
        mixer().varmap.load(path)
    assert caught.value.filename == path
    mixer().varmap.save(path)
    mixer().varmap.load(path)
    assert os.listdir(os.fsencode(tmp_path)) == [name]


def test_a_file_that_can_not_be_written(tmp_path):
    model = mixer()
    with pytest.raises(FileNotFoundError) as caught:
        model.varmap.save(tmp_path / "nowhere" / "model.safetensors")
    assert caught.value.filename == str(tmp_path / "nowhere" / "model.safetensors")
    with pytest.raises(IsADirectoryError):
        model.varmap.save(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        model.varmap.save(tmp_path / "file" / "model.safetensors")
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        with pytest.raises(PermissionError):
            model.varmap.save(locked / "model.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) in (["file"], ["file", "locked"])


def test_names_that_do_not_fit(tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    before = model.state_dict()
    values = {**mixer(seed=1).state_dict(), "E": np.ones(2)}
    del values["D"]
    save_file(values, path)
    with pytest.raises(mb.StateDictError, match=r"^missing: D; unexpected: E; nothing was loaded$"):
        model.varmap.load(path)
    assert_same(model.state_dict(), before)
    assert model.varmap.load(path, strict=False) == (["D"], ["E"])
    assert_same(model.state_dict(), {**mixer(seed=1).state_dict(), "D": before["D"]})


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (np.ones(5), mb.StateDictError, r"D has shape \(5,\), the model needs \(4,\); nothing was loaded"),
        (np.ones(4, "float32"), mb.DTypeError, "D must be float64, got float32"),
        (np.ones(4, "float16"), mb.DTypeError, "D must be float64, got float16"),
        (np.ones(4, "int64"), mb.DTypeError, "D must be float64, got i64"),
        (np.full(4, np.nan), mb.CheckpointError, r"model\.safetensors: D holds 4 NaN or infinite values"),
        (np.full(4, np.inf), mb.CheckpointError, r"model\.safetensors: D holds 4 NaN or infinite values"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_one_wrong_tensor_loads_nothing(wrong, error, message, strict, tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    before = model.state_dict()
    save_file({**mixer(seed=1).state_dict(), "D": wrong}, path)
    with pytest.raises(error, match=message):
        model.varmap.load(path, strict=strict)
    assert_same(model.state_dict(), before)


def test_nan_where_it_is_allowed(tmp_path):
    model, path = mixer(), tmp_path / "model.safetensors"
    model.varmap.update({"D": np.full(4, np.nan)}, allow_nonfinite=True)
    model.varmap.save(path)
    other = mixer(seed=1)
    other.varmap.load(path, allow_nonfinite=True)
    assert_same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_umask_decides_who_may_read_a_file(umask, tmp_path):
    path, before = tmp_path / "model.safetensors", os.umask(umask)
    try:
        mixer().varmap.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    path.write_text("something else")
    monkeypatch.chdir(tmp_path)
    mixer().varmap.save("model.safetensors")
    mixer(seed=1).varmap.save(path)
    model = mixer()
    model.varmap.load("model.safetensors")
    assert_same(model.state_dict(), mixer(seed=1).state_dict())
    assert [found.name for found in tmp_path.iterdir()] == ["model.safetensors"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is no regular file"):
        mixer().varmap.save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_is_followed_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    mixer(seed=1).varmap.save(real)
    real.chmod(0o640)
    link.symlink_to(real)
    mixer(seed=2).varmap.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    loaded = mixer(seed=3)
    loaded.varmap.load(real)
    assert_same(loaded.state_dict(), mixer(seed=2).state_dict())
