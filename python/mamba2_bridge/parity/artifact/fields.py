"""Fields of a JSON object that others may have written: each is checked, and named where it is wrong."""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from mamba2_bridge.exceptions import CheckpointError
from mamba2_bridge.parity.artifact.tensors import DTYPES, SUFFIX, Entry
from mamba2_bridge.parity.plain import is_float

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Fields:
    """A JSON object.

    Parameters
    ----------
    content
        The object.
    where
        Where it is, for messages.

    Raises
    ------
    CheckpointError
        From every method: what the field must be, and what it is.
    """

    def __init__(self, content: Any, where: str) -> None:
        self.where = where
        if not isinstance(content, dict):
            raise CheckpointError(f"{where}: must be an object, got {_short(content)}")
        self._content: dict[str, Any] = content

    def is_null(self, key: str) -> bool:
        """Whether a field is null; it has to be there."""
        return self._get(key) is None

    def text(self, key: str) -> str:
        """Return a string."""
        value = self._get(key)
        return value if isinstance(value, str) else self._wrong(key, "a text", value)

    def flag(self, key: str) -> bool:
        """Return a boolean."""
        value = self._get(key)
        return value if isinstance(value, bool) else self._wrong(key, "true or false", value)

    def integer(self, key: str) -> int:
        """Return an integer."""
        value = self._get(key)
        return value if _is_integer(value) else self._wrong(key, "an integer", value)

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self._get(key)
        return float(value) if _is_number(value) else self._wrong(key, "a finite number", value)

    def numbers(self, key: str, count: int) -> list[float]:
        """Return a list of so many finite numbers."""
        value = self._list(key)
        if len(value) != count or not all(map(_is_number, value)):
            self._wrong(key, f"{count} finite numbers", value)
        return [float(number) for number in value]

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return one of some strings."""
        value = self._get(key)
        if isinstance(value, str) and value in choices:
            return value
        return self._wrong(key, f"one of {', '.join(choices)}", value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self._list(key)
        if not all(isinstance(text, str) for text in value):
            self._wrong(key, "a list of texts", value)
        return tuple(value)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return an object of whatever fields."""
        value = self._get(key)
        return value if isinstance(value, dict) else self._wrong(key, "an object", value)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Return an object of strings."""
        value = self.mapping(key)
        if not all(isinstance(text, str) for text in value.values()):
            self._wrong(key, "an object of texts", value)
        return value

    def losses(self, key: str) -> dict[str, float] | None:
        """Return an object of finite numbers that are not negative, or None for null."""
        if self.is_null(key):
            return None
        value = self.mapping(key)
        for name, loss in value.items():
            if not (_is_number(loss) and loss >= 0):
                self._wrong(f"{key}: {name}", "a finite number, at least 0", loss)
        return {name: float(loss) for name, loss in value.items()}

    def inner(self, key: str) -> Fields:
        """Return an object's fields."""
        return Fields(self._get(key), self._at(key))

    def inners(self, key: str) -> list[Fields]:
        """Return the fields of a list of objects."""
        return [Fields(value, f"{self._at(key)}[{i}]") for i, value in enumerate(self._list(key))]

    def entry(self, key: str) -> Entry:
        """Return what is said of a tensor."""
        return _entry(self.inner(key))

    def entries(self, key: str) -> tuple[Entry, ...]:
        """Return what is said of tensors, whose names all differ."""
        return self._named(key, [_entry(fields) for fields in self.inners(key)])

    def lists_of_entries(self, key: str) -> tuple[tuple[Entry, ...], ...]:
        """Return lists of what is said of tensors."""
        lists = {f"{key}[{i}]": value for i, value in enumerate(self._list(key))}
        outer = Fields(lists, self.where)
        return tuple(outer.entries(name) for name in lists)

    def _get(self, key: str) -> Any:
        if key not in self._content:
            raise CheckpointError(f"{self.where}: {key} is missing")
        return self._content[key]

    def _list(self, key: str) -> list[Any]:
        value = self._get(key)
        return value if isinstance(value, list) else self._wrong(key, "a list", value)

    def _named(self, key: str, entries: list[Entry]) -> tuple[Entry, ...]:
        names: set[str] = set()
        for entry in entries:
            if entry.name in names:
                raise CheckpointError(f"{self._at(key)}: {entry.name} is there twice")
            names.add(entry.name)
        return tuple(entries)

    def _at(self, key: str) -> str:
        return f"{self.where}: {key}"

    def _wrong(self, key: str, expected: str, got: Any) -> NoReturn:
        raise CheckpointError(f"{self._at(key)} must be {expected}, got {_short(got)}")


def _entry(fields: Fields) -> Entry:
    shape = fields._list("shape")
    if not all(_is_integer(size) and size >= 0 for size in shape):
        fields._wrong("shape", "a list of sizes", shape)
    file, sha256 = fields.text("file"), fields.text("sha256")
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or set(file) & set("\\:\0") or not file.endswith(SUFFIX):
        fields._wrong("file", f"a path inside the folder that ends in {SUFFIX}", file)
    if not _SHA256.fullmatch(sha256):
        fields._wrong("sha256", "64 hexadecimal digits", sha256)
    return Entry(fields.text("name"), file, tuple(shape), fields.choice("dtype", DTYPES), sha256)


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> TypeGuard[float]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and is_float(value) and math.isfinite(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
