"""Arrays that are made when they are read: nothing large is held longer than it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LazyArrays(Mapping[str, "NDArray[Any]"]):
    """A mapping of names to what makes their arrays.

    Parameters
    ----------
    makers
        Called at every read.
    """

    def __init__(self, makers: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Make an array."""
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._makers)

    def __len__(self) -> int:
        """Give the number of names."""
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is such a name, without making its array."""
        return name in self._makers


def subset(arrays: Mapping[str, NDArray[Any]], names: Iterable[str]) -> LazyArrays:
    """Give some arrays of a mapping, read when they are asked for."""
    return LazyArrays({name: partial(arrays.__getitem__, name) for name in names})


def mapped(
    function: Callable[[NDArray[Any]], NDArray[Any]], arrays: Mapping[str, NDArray[Any]]
) -> LazyArrays:
    """Give every array of a mapping after ``function``, at each read."""

    def made(name: str) -> NDArray[Any]:
        return function(arrays[name])

    return LazyArrays({name: partial(made, name) for name in arrays})
