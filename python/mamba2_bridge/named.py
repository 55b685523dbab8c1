"""Native tensors as mappings from names to arrays: parameters, gradients, intermediates, moments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge import _native


class _Holder(Protocol):
    def get(self, name: str, /) -> NDArray[Any] | None: ...


class NativeArrays(Mapping[str, Any]):
    """Tensors by name, in an order of their own, that stay native until they are read; reading gives copies.

    Parameters
    ----------
    holder
        Gives a copy of one of them.
    names
        Of all that it holds.
    """

    def __init__(self, holder: _Holder, names: Iterable[str]) -> None:
        self._holder = holder
        self._names = dict.fromkeys(names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Give a copy of one of them."""
        value = self._holder.get(name) if isinstance(name, str) else None
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self._names)

    def __len__(self) -> int:
        """Give their number."""
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is one of this name, without a copy."""
        return name in self._names


class NamedArrays(NativeArrays):
    """Such tensors with nothing else to them."""

    def __init__(self, native: _native.NamedTensors) -> None:
        self._shapes = {name: tuple(shape) for name, shape in native.shapes()}
        super().__init__(native, self._shapes)

    def __repr__(self) -> str:
        """List names and shapes."""
        shapes = ", ".join(f"{name}: {shape}" for name, shape in self._shapes.items())
        return f"{type(self).__name__}({shapes})"
