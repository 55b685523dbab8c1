"""The VarMap's parameters as a mapping from names to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mamba2_bridge.exceptions import StateDictError
from mamba2_bridge.named import NativeArrays

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from mamba2_bridge import _native


class LoadResult(NamedTuple):
    """Names that a load left aside; both lists are empty after a strict one."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class VarMap(NativeArrays, MutableMapping[str, Any]):
    """Parameters by name, in the model's order. Reading gives copies, setting checks name, shape and dtype.

    `update` sets all of its parameters or none. Names can't be removed.
    """

    def __init__(self, native: _native.Model) -> None:
        self._native = native
        self._shapes = {name: tuple(shape) for name, shape in native.shapes()}
        super().__init__(native, self._shapes)

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        """Set one parameter.

        Raises
        ------
        StateDictError
            A name that there isn't, or another shape.
        DTypeError
            Another element type than the model's.
        ValueError
            NaN or infinity; `update` can allow them.
        """
        self.update({name: value})

    def __delitem__(self, name: str) -> NoReturn:
        """Refuse: a model's parameters are fixed."""
        raise TypeError(f"{name}: parameters can be set, not removed")

    def __repr__(self) -> str:
        """List names and shapes."""
        return f"VarMap({', '.join(f'{name}: {shape}' for name, shape in self._shapes.items())})"

    def update(  # type: ignore[override]
        self,
        values: Mapping[str, ArrayLike] | Iterable[tuple[str, ArrayLike]] = (),
        /,
        *,
        allow_nonfinite: bool = False,
        **more: ArrayLike,
    ) -> None:
        """Set several parameters: all of them, or none and an error (see `__setitem__`)."""
        named = {**dict(values), **more}
        unknown = [name for name in named if name not in self._shapes]
        if unknown:
            near = get_close_matches(str(unknown[0]), list(self._shapes), n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise StateDictError(f"unexpected: {', '.join(map(str, unknown))}{hint}; nothing was loaded")
        self._native.set(named, strict=False, allow_nonfinite=allow_nonfinite)

    def save(self, path: str | PathLike[str]) -> None:
        """Write all parameters to a safetensors file, which is replaced as a whole or not at all."""
        self._native.save(path, {"format": "mamba2_bridge"})

    def load(
        self, path: str | PathLike[str], strict: bool = True, *, allow_nonfinite: bool = False
    ) -> LoadResult:
        """Set the parameters from a safetensors file: all of them, or none and an error.

        Parameters
        ----------
        path
            The file.
        strict
            The file must hold exactly the model's names. False: sets those it has and reports the rest.
        allow_nonfinite
            Accept NaN and infinity.

        Raises
        ------
        OSError
            The file can't be read.
        CheckpointError
            It isn't a sound safetensors file, or holds NaN or infinity.
        StateDictError
            Missing or unexpected names, or another shape.
        DTypeError
            Another element type than the model's.
        """
        return LoadResult(*self._native.load(path, strict=strict, allow_nonfinite=allow_nonfinite))
