"""Any `torch.nn.Module` as a runner: its parts' outputs are the intermediate tensors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.in_torch.runner import TorchRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.in_torch.taps import Taps


class ModuleRunner(TorchRunner):
    """A `torch.nn.Module`, looked into by hooks.

    The output of each part that gives one tensor is an intermediate tensor by the part's name, and where the
    part is called again, with ``#2`` and so on after it. It tells no stages: unless the other side does, or a
    subclass, each is taken for what the one before it leads to, and in a model that branches a wrong gradient
    may be put down to a neighbour.

    Parameters
    ----------
    build
        Makes the module of a case. Its parameters' names are the case's.
    call
        Runs it on a batch's inputs by name, as tensors; None: with the inputs as keywords. A tensor that it
        returns is the output ``out``; of several, each but the first is ``out.1`` and so on; a mapping, named
        tuple or dataclass names its own, and what is nested comes after a dot.
    name
        What reports call it; None: the module's class.
    """

    feeds = True

    def __init__(
        self,
        build: Callable[[Case], nn.Module],
        call: Callable[[Any, Mapping[str, Tensor]], Any] | None = None,
        name: str | None = None,
    ) -> None:
        self._build, self._call, self._name = build, call, name

    @property
    def name(self) -> str:
        """What reports call it."""
        if self._name is not None:
            return self._name
        return type(self.model).__name__ if hasattr(self, "model") else "module"

    def build(self, case: Case, dtype: torch.dtype) -> nn.Module:
        """Make the module of a case.

        Raises
        ------
        ConfigError
            A case that goes token by token: what a module keeps from one token to the next isn't known.
        """
        if case.by_token:
            raise ConfigError(f"{case.name}: a module of whatever kind can't go token by token")
        return self._build(case).to(dtype)

    def call(self, inputs: Mapping[str, Tensor], taps: Taps) -> dict[str, Tensor]:
        """Run the module with a hook on each of its parts."""
        calls: dict[str, int] = {}

        def hook_of(name: str) -> Callable[[nn.Module, Any, Any], Any]:
            def hook(module: nn.Module, arguments: Any, output: Any) -> Any:
                del module, arguments
                if not isinstance(output, Tensor):
                    return output
                calls[name] = calls.get(name, 0) + 1
                return taps(name if calls[name] == 1 else f"{name}#{calls[name]}", output)

            return hook

        with ExitStack() as hooks:
            for name, part in self.model.named_modules():
                if name:
                    hooks.callback(part.register_forward_hook(hook_of(name)).remove)
            output = self.model(**inputs) if self._call is None else self._call(self.model, inputs)
        return _named(output)


def _named(output: Any) -> dict[str, Tensor]:
    """Give every tensor of what a module returns a name: ``out``, or by place, key or field."""
    if isinstance(output, Tensor):
        return {"out": output}
    if isinstance(output, (list, tuple)) and not hasattr(output, "_fields"):
        parts = {"out" if i == 0 else f"out.{i}": part for i, part in enumerate(output)}
    else:
        parts = _parts(output)
    named = dict(_tensors(parts))
    if not named:
        raise TypeError(f"a module must return tensors, got {type(output).__name__}")
    return named


def _tensors(parts: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, part in parts.items():
        if isinstance(part, Tensor):
            yield name, part
        else:
            yield from _tensors({f"{name}.{of}": inner for of, inner in _parts(part).items()})


def _parts(value: Any) -> dict[str, Any]:
    """Give what is in a mapping, a sequence, or an object with fields; nothing is in a number or None."""
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if hasattr(value, "_asdict"):  # a named tuple
        return dict(value._asdict())
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return {str(i): part for i, part in enumerate(value)}
    return {}
