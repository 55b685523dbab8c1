"""Any `torch.nn.Module` as a runner: its parts' outputs are the intermediate tensors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mamba2_bridge.parity.in_torch.runner import TorchRunner
from mamba2_bridge.parity.stages import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import nn

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.in_torch.taps import Taps
    from mamba2_bridge.parity.stages import Stage


class ModuleRunner(TorchRunner):
    """A `torch.nn.Module`, looked into by hooks.

    The output of each part that gives one tensor is an intermediate tensor by the part's name, and where the
    part is called again, with ``#2`` and so on after it. Each is taken for what the one before it leads to:
    in a model that branches, a wrong gradient may be put down to a neighbour. A subclass can tell better in
    `stages`.

    Parameters
    ----------
    build
        Makes the module of a case. Its parameters' names are the case's.
    call
        Runs it on a batch's inputs by name, as tensors; None: with the inputs as keywords. A tensor that it
        returns is the output ``out``; of several, each but the first is ``out.1`` and so on; a mapping names
        its own.
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
        """Make the module of a case."""
        return self._build(case).to(dtype)

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """Take parts for stages in the order in which they were called."""
        return in_order(names, list(self._inputs))

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
    if isinstance(output, Tensor):
        return {"out": output}
    if isinstance(output, Mapping):
        return {name: value for name, value in output.items() if isinstance(value, Tensor)}
    tensors = [value for value in output if isinstance(value, Tensor)]
    return {"out" if i == 0 else f"out.{i}": tensor for i, tensor in enumerate(tensors)}
