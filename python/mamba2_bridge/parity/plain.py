"""Reports as JSON can hold them, and back: a number that is not finite is a string."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, get_args

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.measures import Difference
from mamba2_bridge.parity.result import Mode, Phase, TensorResult
from mamba2_bridge.parity.tolerances import QUANTITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """Turn tuples into lists and numbers that are not finite into ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def plain_result(result: TensorResult) -> dict[str, Any]:
    """Return a result as JSON can hold it, and whether it passed and by how much."""
    fields_of: dict[str, Any] = plain({**asdict(result), "passed": result.passed, "badness": result.badness})
    return fields_of


def read_result(value: Any, where: str) -> TensorResult:
    """Make a result of what `plain_result` returned.

    Parameters
    ----------
    value
        From JSON.
    where
        What messages call it.

    Raises
    ------
    ConfigError
        Naming the part that is missing or isn't what it should be.
    """
    row = _all_of(value, _RESULT, where)
    result = TensorResult(**row)
    for name in ("passed", "badness"):
        told, found = read_field(value, name, _DERIVED[name], where), getattr(result, name)
        if told != found:
            raise ConfigError(f"{where} says {name}: {told}, but its numbers {found}: it was changed by hand")
    return result


def read_field(value: Any, name: str, read: Callable[[Any, str], Any], where: str) -> Any:
    """Read one entry of an object.

    Parameters
    ----------
    value
        The object, from JSON.
    name
        Of the entry.
    read
        Makes something of the entry; takes its place for messages, too.
    where
        What messages call the object.

    Raises
    ------
    ConfigError
        If there is no such entry, or it isn't what it should be.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be an object, got {value!r:.40}")
    if name not in value:
        raise ConfigError(f"{where} has no {name!r}")
    return read(value[name], f"{where}.{name}")


def is_float(value: float) -> bool:
    """Whether a number is one that a float can hold: JSON has whole numbers of any size."""
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def text(value: Any, where: str) -> str:
    """Check that a value is a text."""
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be a text, got {value!r:.40}")
    return value


def truth(value: Any, where: str) -> bool:
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, got {value!r:.40}")
    return value


def items(value: Any, where: str, read: Callable[[Any, str], Any]) -> list[Any]:
    """Read every entry of a list."""
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list, got {value!r:.40}")
    return [read(item, f"{where}[{i}]") for i, item in enumerate(value)]


def texts(value: Any, where: str) -> list[str]:
    """Read a list of texts."""
    return items(value, where, text)


def named(value: Any, where: str) -> dict[str, Any]:
    """Check that a value is an object."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be an object, got {value!r:.40}")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and is_float(value):
        return float(value)
    if isinstance(value, str) and value in _NONFINITE:
        return _NONFINITE[value]
    raise ConfigError(f"{where} must be a number, got {value!r:.40}")


def _count(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ConfigError(f"{where} must be a whole number, at least 0, got {value!r:.40}")


def _counts(value: Any, where: str) -> tuple[int, ...]:
    return tuple(items(value, where, _count))


def _pair(value: Any, where: str) -> tuple[int, ...]:
    pair = _counts(value, where)
    if len(pair) != 2:
        raise ConfigError(f"{where} must have two entries, got {len(pair)}")
    return pair


def _one_of(allowed: Sequence[str]) -> Callable[[Any, str], str]:
    def read(value: Any, where: str) -> str:
        if value not in allowed:
            raise ConfigError(f"{where} must be one of {', '.join(allowed)}, got {value!r:.40}")
        return text(value, where)

    return read


def _optional(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: None if value is None else read(value, where)


def _difference(value: Any, where: str) -> Difference:
    return Difference(**_all_of(value, _DIFFERENCE, where))


def _all_of(value: Any, readers: Mapping[str, Callable[[Any, str], Any]], where: str) -> dict[str, Any]:
    return {name: read_field(value, name, read, where) for name, read in readers.items()}


_DIFFERENCE: dict[str, Callable[[Any, str], Any]] = {
    **{field.name: _number for field in fields(Difference)},
    "index": _counts,
    "nonfinite": _pair,
}
_RESULT: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("case", "tensor", "stage"), text),
    "quantity": _one_of(QUANTITIES),
    "dtype": _one_of(("float32", "float64")),
    "mode": _one_of(get_args(Mode)),
    "phase": _one_of(get_args(Phase)),
    "step": _count,
    "bound": _optional(_number),
    "own_loss": _number,
    "difference": _optional(_difference),
    "problem": _optional(text),
    "shape": _counts,
}
_DERIVED: dict[str, Callable[[Any, str], Any]] = {"passed": truth, "badness": _number}
