"""Files are the old or the new ones, never half."""

from __future__ import annotations

import json
import os
import stat

import pytest

from mamba2_bridge.exceptions import ConfigError, DataError
from mamba2_bridge.files import (
    read_json,
    replaced_file,
    replaced_folder,
    write_json,
)


def test_a_file_is_replaced_when_all_is_written(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replaced_file(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="full"):
        _fail_to_write(path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path, there):
    target, link = tmp_path / "folder" / "a.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link.symlink_to(target)
    with replaced_file(link) as beside:
        beside.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [one.name for one in target.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("linked", [True, False])
def test_what_is_no_regular_file_is_left_alone(tmp_path, make, linked):
    path = tmp_path / "a"
    make(path)
    before = path.stat()
    if linked:
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "a")
    with pytest.raises(ConfigError, match="is not a regular file"), replaced_file(path):
        pass
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)


def _fail_to_write(path):
    with replaced_file(path) as beside:
        beside.write_text("half")
        raise OSError("the disk is full")


def _fail_to_write_folder(path):
    with replaced_folder(path) as beside:
        (beside / "half").touch()
        raise OSError("the disk is full")


def test_a_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "other").touch()
    write_json(tmp_path / "a.json", {})
    modes = {stat.S_IMODE(os.stat(one).st_mode) for one in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "best"
    for text in ("first", "second"):
        with replaced_folder(path) as beside:
            (beside / text).touch()
    assert [one.name for one in path.iterdir()] == ["second"]
    assert [one.name for one in tmp_path.iterdir()] == ["best"]


def test_an_error_leaves_the_old_folder(tmp_path):
    path = tmp_path / "best"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(OSError, match="full"):
        _fail_to_write_folder(path)
    assert [one.name for one in path.iterdir()] == ["old"]
    assert [one.name for one in tmp_path.iterdir()] == ["best"]


def test_nan_is_refused_and_the_old_json_stays(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"loss": 1.0})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"loss": float("nan")})
    assert json.loads(path.read_text()) == {"loss": 1.0}


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_json_that_is_no_object_is_refused_by_name(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json"):
        read_json(tmp_path / "a.json")
