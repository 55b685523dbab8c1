"""Native tensors as a mapping from names to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge import _native


class NamedArrays(Mapping[str, Any]):
    """Tensors by name that stay native until they are read; reading gives copies."""

    def __init__(self, native: _native.NamedTensors) -> None:
        self._native = native
        self._shapes = {name: tuple(shape) for name, shape in native.shapes()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Give a copy of one of them."""
        value = self._native.get(name) if isinstance(name, str) else None
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self._shapes)

    def __len__(self) -> int:
        """Give their number."""
        return len(self._shapes)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is one of this name, without a copy."""
        return name in self._shapes

    def __repr__(self) -> str:
        """List names and shapes."""
        shapes = ", ".join(f"{name}: {shape}" for name, shape in self._shapes.items())
        return f"{type(self).__name__}({shapes})"
