"""One array in one safetensors file: written and dropped, read and checked when it is looked at."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mamba2_bridge._extras import require

require("safetensors", "mamba2_bridge.parity.artifact")

import numpy as np  # noqa: E402 (only now is it sure that the rest can be imported)
from safetensors import SafetensorError, safe_open  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

from mamba2_bridge.exceptions import CheckpointError, DTypeError  # noqa: E402
from mamba2_bridge.parity.lazy import LazyArrays  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mamba2_bridge.parity.cases import Array, Arrays

SUFFIX = ".safetensors"
DTYPES = (
    "float64", "float32", "float16", "bool",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
"""Numpy's names of what can be recorded."""

_KEY = "tensor"
_READABLE = 80


@dataclass(frozen=True)
class Entry:
    """What a manifest says of one array.

    Attributes
    ----------
    name
        The array's.
    file
        Where it lies in the artifact's folder.
    shape, dtype
        The array's own.
    sha256
        Of its bytes, little-endian, last axis fastest.
    """

    name: str
    file: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}, {self.dtype} of shape {self.shape}"


def write_tensors(root: Path, folder: str, arrays: Arrays) -> tuple[Entry, ...]:
    """Write arrays into ``folder`` below ``root``, each read only when the one before is dropped."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    return tuple(
        write_tensor(root, f"{folder}/{number:04d}-{_readable(name)}{SUFFIX}", name, arrays[name])
        for number, name in enumerate(arrays)
    )


def write_tensor(root: Path, file: str, name: str, array: Array) -> Entry:
    """Write one array.

    Raises
    ------
    DTypeError
        An element type that no artifact holds.
    OSError
        The file can't be written.
    """
    array = np.asarray(array)
    if array.dtype.name not in DTYPES:
        raise DTypeError(f"{name} has dtype {array.dtype}, an artifact holds {', '.join(DTYPES)}")
    array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    try:
        save_file({_KEY: array}, root / file)
    except SafetensorError as error:
        raise OSError(f"{root / file}: {error}") from None
    return Entry(name, file, array.shape, array.dtype.name, _checksum(array))


def read_tensors(root: Path, entries: Iterable[Entry]) -> LazyArrays:
    """Give arrays by name, each read and checked whenever it is looked at."""
    return LazyArrays({entry.name: partial(read_tensor, root, entry) for entry in entries})


def read_tensor(root: Path, entry: Entry) -> Array:
    """Read one array.

    Raises
    ------
    CheckpointError
        A file that is missing, damaged, or not what the manifest says.
    """
    path = root / entry.file
    check_file(root, entry)
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            if names != [_KEY]:
                raise CheckpointError(f"{path}: must hold {_KEY!r} alone, for {entry.name}, got {names}")
            array: Array = file.get_tensor(_KEY)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: is missing; it should hold {entry}") from None
    except (SafetensorError, KeyError, TypeError) as error:  # the latter of element types that numpy lacks
        raise CheckpointError(f"{path}: should hold {entry}; no sound safetensors file: {error}") from None
    if (array.dtype.name, array.shape) != (entry.dtype, entry.shape):
        raise CheckpointError(f"{path}: should hold {entry}, got {array.dtype.name} of shape {array.shape}")
    found = _checksum(array)
    if found != entry.sha256:
        raise CheckpointError(f"{path}: {entry.name} should have SHA-256 {entry.sha256}, got {found}")
    return array if array.flags.writeable else array.copy()


def check_file(root: Path, entry: Entry) -> None:
    """Check that an array's file is there and large enough, without reading it.

    Raises
    ------
    CheckpointError
        It isn't.
    """
    path = root / entry.file
    if not path.resolve().is_relative_to(root.resolve()):
        raise CheckpointError(f"{path}: leads out of the artifact's folder, to {path.resolve()}")
    if not path.is_file():
        raise CheckpointError(f"{path}: is missing; it should hold {entry}")
    size = path.stat().st_size
    if size < entry.nbytes:
        raise CheckpointError(f"{path}: is cut off; {entry} takes {entry.nbytes} bytes, got {size}")


def _checksum(array: Array) -> str:
    flat = np.asarray(array, order="C").reshape(-1).view(np.uint8)
    return hashlib.sha256(flat.data).hexdigest()


def _readable(name: str) -> str:
    """Keep of a name what every file system takes."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:_READABLE]
