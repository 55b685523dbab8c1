"""Files and folders that are either the old or the new one, never half: written beside, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mamba2_bridge import _native
from mamba2_bridge.exceptions import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it takes its place, on an error it is removed.

    A symbolic link stays: what it leads to is replaced.

    Raises
    ------
    ConfigError
        If something lies at `path` that is no regular file.
    OSError
        If the folder can't be written to; `path` is then as it was.
    """
    check_replaceable(path)
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes private files; these are as readable as any other
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Check that `path` is free or a regular file: a pipe or device would be replaced, not written to.

    Raises
    ------
    ConfigError
        If it is neither.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is there already and is not a regular file")


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success it takes its place, on an error it is removed.

    Raises
    ------
    OSError
        If it can't be written; what lay at `path` is then as it was.
    """
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=path.parent) as beside:
        staged = Path(beside) / path.name
        staged.mkdir()
        yield staged
        _native.replace_folder(staged, path)


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON in place of `path`; NaN and infinity are refused."""
    text = json.dumps(value, indent=1, allow_nan=False)
    with replaced_file(path) as beside:
        beside.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    DataError
        If it holds anything but a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
