"""Names of parameters in other implementations, with transposes and splits, as one table each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mamba2_bridge.exceptions import StateDictError
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.runner import Runner
from mamba2_bridge.parity.stages import PARAM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mamba2_bridge.parity.cases import Array, Arrays, Batch, Case, DType
    from mamba2_bridge.parity.runner import Feed
    from mamba2_bridge.parity.stages import Stage


@dataclass(frozen=True)
class Rule:
    """What a parameter is called elsewhere, and how its numbers lie there.

    Attributes
    ----------
    ours
        Its name; a ``*`` stands for any text without a dot, the same in ``theirs``.
    theirs
        The other name; several where the parameter is split into several.
    sizes
        Of the parts along the first axis, where it is split.
    transpose
        Whether the last two axes of each part are exchanged.
    """

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transpose: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.theirs, str):
            raise StateDictError(f"{self.ours}: theirs must be a tuple of names, got {self.theirs!r}")
        if len(self.sizes) != (len(self.theirs) if self.sizes or len(self.theirs) != 1 else 0):
            raise StateDictError(f"{self.ours}: {len(self.sizes)} sizes for {len(self.theirs)} names")

    def split(self, array: Array) -> list[Array]:
        """Give their parts of one of our arrays.

        Raises
        ------
        StateDictError
            The sizes don't add up to the first axis.
        """
        if self.sizes and sum(self.sizes) != array.shape[0]:
            raise StateDictError(f"{self.ours} of shape {array.shape} can't be split into {self.sizes}")
        parts = np.split(array, np.cumsum(self.sizes)[:-1]) if self.sizes else [array]
        return [part.swapaxes(-1, -2) if self.transpose else part for part in parts]

    def join(self, parts: Sequence[Array]) -> Array:
        """Give our array of their parts."""
        whole = [part.swapaxes(-1, -2) if self.transpose else part for part in parts]
        return np.concatenate(whole) if len(whole) > 1 else whole[0]


@dataclass(frozen=True)
class NameMap:
    """Rules in order, of which the first that fits a parameter is its own; without one it keeps its name.

    Parameters
    ----------
    rules
        Of all parameters that have another name or lie otherwise.
    """

    rules: Sequence[Rule]

    def names(self, ours: str) -> tuple[str, ...]:
        """Give their names of one of our parameters."""
        return self._of(ours)[1]

    def translate(self, ours: Arrays) -> dict[str, Array]:
        """Give arrays their names and their layout.

        Raises
        ------
        StateDictError
            No rule fits any of them, or one can't be split as a rule says.
        """
        theirs: dict[str, Array] = {}
        if self.rules and all(self._of(name)[0] is None for name in ours):
            raise StateDictError(
                f"no rule fits a parameter: rules are for {', '.join(rule.ours for rule in self.rules)}, the "
                f"parameters {', '.join(ours)}; ours is what a case calls one, theirs what the runner does"
            )
        for name in ours:
            rule, names = self._of(name)
            theirs |= zip(names, [ours[name]] if rule is None else rule.split(ours[name]), strict=True)
        return theirs

    def back(self, theirs: Arrays, names: Sequence[str]) -> LazyArrays:
        """Give arrays back by our ``names``: all whose parts are there; unknown ones keep their names."""
        makers = {}
        used: set[str] = set()
        for name in names:
            rule, parts = self._of(name)
            if all(part in theirs for part in parts):
                makers[name] = _joined(rule, theirs, parts)
                used.update(parts)
        left = [name for name in theirs if name not in used]
        return LazyArrays(makers | {name: _joined(None, theirs, (name,)) for name in left})

    def _of(self, name: str) -> tuple[Rule | None, tuple[str, ...]]:
        for rule in self.rules:
            head, star, tail = rule.ours.partition("*")
            middle = name[len(head) : len(name) - len(tail)]
            if name == rule.ours or (
                star
                and name.startswith(head)
                and name.endswith(tail)
                and len(name) >= len(head) + len(tail)
                and "." not in middle
            ):
                return rule, tuple(theirs.replace("*", middle) for theirs in rule.theirs)
        return None, (name,)


def _joined(rule: Rule | None, theirs: Arrays, names: Sequence[str]) -> Callable[[], Array]:
    if rule is None:
        return _reader(theirs, names[0])
    return lambda: rule.join([theirs[name] for name in names])


STATE_SPACES = NameMap([])
"""state-spaces/mamba: its names are ours."""

TRANSFORMERS = NameMap([Rule("backbone.embedding.weight", ("backbone.embeddings.weight",))])
"""Hugging Face transformers: as state-spaces but for the embedding."""


class Renamed(Runner):
    """A runner whose model has other names for its parameters, or keeps them in another layout.

    Parameters
    ----------
    runner
        It sees its own names alone.
    names
        What they are to cases, and to whom they are compared with.
    """

    def __init__(self, runner: Runner, names: NameMap) -> None:
        self._runner, self._names = runner, names

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._runner.name

    @property
    def intermediates(self) -> Sequence[str]:
        """As the runner's."""
        return self._runner.intermediates

    @property
    def feeds(self) -> bool:
        """As the runner's."""
        return self._runner.feeds

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """As the runner's."""
        return self._runner.stages(names)

    def load(self, case: Case, dtype: DType) -> None:
        """Load parameters by the runner's names.

        Raises
        ------
        StateDictError
            No rule fits any parameter, or one can't be split as a rule says.
        """
        self._ours = list(case.params)
        optimizer = case.optimizer
        if optimizer is not None:
            kept = [name for name in case.params if not optimizer.decays(name)]
            undecayed = tuple(theirs for name in kept for theirs in self._names.names(name))
            optimizer = replace(optimizer, undecayed=undecayed)
        untrained = [name for name in case.params if name not in set(case.trained)]
        theirs = replace(
            case,
            params=self._names.translate(case.params),
            optimizer=optimizer,
            untrained=tuple(theirs for name in untrained for theirs in self._names.names(name)),
        )
        self._runner.load(theirs, dtype)

    def forward(self, batch: Batch, feed: Feed | None = None) -> Arrays:
        """As the runner's."""
        return self._runner.forward(batch, feed)

    def backward(self) -> Arrays:
        """Give the runner's gradients our names."""
        return self._back(self._runner.backward(), (PARAM,))

    def step(self) -> Arrays:
        """Give what the runner's step left our names."""
        return self._back(self._runner.step(), (PARAM, "exp_avg.", "exp_avg_sq."))

    def _back(self, arrays: Arrays, prefixes: Sequence[str]) -> Arrays:
        makers: dict[str, Callable[[], Array]] = {}
        for prefix in prefixes:
            mine = {name.removeprefix(prefix): name for name in arrays if name.startswith(prefix)}
            under = LazyArrays({short: _reader(arrays, name) for short, name in mine.items()})
            back = self._names.back(under, self._ours)
            makers |= {prefix + name: _reader(back, name) for name in back}
        others = [name for name in arrays if not name.startswith(tuple(prefixes))]
        return LazyArrays({name: _reader(arrays, name) for name in others} | makers)


def _reader(arrays: Arrays, name: str) -> Callable[[], Array]:
    return lambda: arrays[name]
