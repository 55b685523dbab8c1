"""The one table of tolerances, ``tolerances.json``, and policies like it.

Tests in Python and Rust and the parity commands all look bounds up in that table; nothing else in the project
holds one.

The yardstick is always the reference in fp64. What the reference itself loses when it is run in fp32 is a
tensor's *own loss*, its noise floor: a tensor that nearly cancels has a large one, and no implementation can
do better than a small multiple of it: twice it in fp32, four times it in fp64 after scaling by the ratio of
the two precisions, 2**-29.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.patterns import fits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from typing_extensions import Self

    from mamba2_bridge.parity.cases import DType

Quantity = Literal[
    "value",
    "state",
    "grad",
    "loss",
    "optimizer step",
    "finite difference",
    "forecast",
]
QUANTITIES: tuple[str, ...] = Quantity.__args__  # type: ignore[attr-defined]
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Tolerance:
    """A bound on `relative_error`, and what it is for.

    Attributes
    ----------
    tensor
        Pattern of the tensor's name, as in a shell: ``*`` and ``?``.
    dtype, quantity
        What it is for; ``*``: any.
    flat
        The bound for a tensor that does not cancel.
    per_own_loss
        Allowed multiple of the tensor's own loss, where that is more.
    reason
        Why the bound is what it is.
    """

    quantity: str
    dtype: str
    flat: float
    per_own_loss: float
    reason: str
    tensor: str = "*"

    def __post_init__(self) -> None:
        for name, known in (("quantity", QUANTITIES), ("dtype", DTYPES)):
            if getattr(self, name) not in ("*", *known):
                raise ConfigError(f"{name} must be one of *, {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("flat", "per_own_loss"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (number and 0 <= value <= sys.float_info.max):
                raise ConfigError(f"{name} must be a finite number, at least 0, got {value!r}")
        for name in ("reason", "tensor"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value.strip()):
                raise ConfigError(f"{name} must be a text that is not empty, got {value!r}")

    def bound(self, own_loss: float = 0.0) -> float:
        """Bound for a tensor that the reference in fp32 gets wrong by ``own_loss``."""
        return max(self.flat, self.per_own_loss * own_loss)

    def fits(self, tensor: str, quantity: str, dtype: str) -> bool:
        """Whether it is for this tensor."""
        return self.quantity in ("*", quantity) and self.dtype in ("*", dtype) and fits(tensor, self.tensor)


@dataclass(frozen=True, repr=False)
class Policy:
    """Tolerances in order: the first that fits a tensor is its own, and a tensor that none fits fails."""

    tolerances: Sequence[Tolerance]

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """Read a policy: a JSON list of objects with the attributes of `Tolerance`.

        Raises
        ------
        ConfigError
            If it is no such list, naming the entry and what is wrong with it.
        """
        path = Path(path)
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: no JSON: {error}") from error
        if not isinstance(rows, list):
            raise ConfigError(f"{path}: must be a list of tolerances, got {type(rows).__name__}")
        return cls([_tolerance(row, f"{path}: tolerance {i}") for i, row in enumerate(rows)])

    def __repr__(self) -> str:
        """Tell how many there are: a default argument of many functions is better short."""
        return f"<Policy of {len(self.tolerances)} tolerances>"

    def find(self, tensor: str, quantity: str, dtype: str) -> Tolerance | None:
        """Return the first that fits."""
        fitting = (row for row in self.tolerances if row.fits(tensor, quantity, dtype))
        return next(fitting, None)

    def before(self, other: Policy) -> Policy:
        """Put these tolerances before those of another policy."""
        return Policy([*self.tolerances, *other.tolerances])


def _tolerance(row: Any, where: str) -> Tolerance:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be an object, got {row!r}")
    known = {field.name for field in fields(Tolerance)}
    if unknown := sorted(row.keys() - known):
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if missing := sorted(known - row.keys() - {"tensor"}):
        raise ConfigError(f"{where}: {', '.join(missing)} missing")
    try:
        return Tolerance(**row)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


DEFAULT = Policy.read(Path(__file__).with_suffix(".json"))
"""The project's own."""


def tolerance(quantity: Quantity, dtype: DType, tensor: str = "") -> Tolerance:
    """Look a tolerance of the project up; what the table does not have is a KeyError, never a default."""
    found = DEFAULT.find(tensor, quantity, dtype)
    if found is None:
        pairs = [(row.quantity, row.dtype) for row in DEFAULT.tolerances]
        raise KeyError(f"no tolerance for {quantity!r} in {dtype!r}; the table has {pairs}")
    return found


def quantity_of(result: str) -> Quantity:
    """Tell which quantity a result's name stands for: a gradient, a loss, a state, or else a value."""
    if result.startswith("grad."):
        return "grad"
    if result == "loss":
        return "loss"
    return "state" if result == "final" or result.endswith("_state") else "value"
