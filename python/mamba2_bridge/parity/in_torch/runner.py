"""What runners of torch models share: from a batch to gradients, and AdamW's steps."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mamba2_bridge.parity.in_torch.taps import Taps
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.runner import Runner
from mamba2_bridge.parity.stages import PARAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mamba2_bridge.parity.cases import AdamW, Array, Arrays, Batch, Case, DType
    from mamba2_bridge.parity.runner import Feed


class TorchRunner(Runner):
    """A runner of a `torch.nn.Module` that a subclass builds and calls.

    Attributes
    ----------
    model
        What `build` made, with the case's parameters; there after `load`.
    """

    model: nn.Module

    @abstractmethod
    def build(self, case: Case, dtype: torch.dtype) -> nn.Module:
        """Make the model of a case, with whatever parameters."""

    @abstractmethod
    def call(self, inputs: Mapping[str, Tensor], taps: Taps) -> dict[str, Tensor]:
        """Run the model: outputs by name, the first of which a target is for."""

    def parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Return the model's parameters by the case's names."""
        return self.model.named_parameters()

    def load(self, case: Case, dtype: DType) -> None:
        """Build the model and load it, as `Runner.load`.

        Raises
        ------
        RuntimeError
            Names or shapes that don't fit the model.
        """
        for made in ("model", "_outputs", "_loss", "_grads", "_optimizer", "_taps"):
            self.__dict__.pop(made, None)  # there may be no room for the old model beside the new one
        self.case = case
        self.model = self.build(case, getattr(torch, dtype))
        mine = dict(self.parameters())
        if mine.keys() != case.params.keys():
            missing, unexpected = sorted(mine.keys() - case.params), sorted(case.params.keys() - mine)
            raise RuntimeError(f"parameters missing: {missing}, unexpected: {unexpected}")
        with torch.no_grad():
            for name, value in case.astype(dtype).params.items():
                if tuple(mine[name].shape) != value.shape:
                    raise RuntimeError(
                        f"{name} has shape {value.shape}, the model's {tuple(mine[name].shape)}"
                    )
                mine[name].copy_(torch.from_numpy(value))
        self._optimizer: torch.optim.Optimizer | None = None
        self._taps = Taps()
        self._inputs: dict[str, Tensor] = {}
        self._outputs: dict[str, Tensor] = {}

    @property
    def intermediates(self) -> Sequence[str]:
        """Names of what went through the taps, but for those of inputs and outputs."""
        taken = {*self._inputs, *self._outputs, "loss"}
        return [name for name in self._taps.values if name not in taken]

    def forward(self, batch: Batch, feed: Feed | None = None) -> Arrays:
        """Compute everything from inputs to outputs, as `Runner.forward`."""
        self._taps = Taps(feed)
        self._batch = batch
        self._inputs = {name: torch.tensor(array) for name, array in batch.inputs.items()}
        if self.case.by_token:
            with torch.no_grad():
                self._outputs = self.call(self._inputs, self._taps)
        else:
            for tensor in self._inputs.values():
                if tensor.is_floating_point():
                    tensor.requires_grad_()
            given = {
                name: tensor.clone() for name, tensor in self._inputs.items()
            }  # to be worked on in place
            self._outputs = self.call(given, self._taps)
        results = {name: self._taps.values[name] for name in self.intermediates} | self._outputs
        if batch.target is not None:
            prediction = next(iter(self._outputs.values()))
            self._loss = self.loss(prediction, torch.tensor(batch.target))
            results["loss"] = self._loss
        return _arrays(results)

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Mean squared error."""
        return (prediction - target).square().mean()

    def backward(self) -> Arrays:
        """Go back from the last `forward`, as `Runner.backward`."""
        self._grads: dict[str, Tensor | None] = {}
        if not self._batch.starts_backward:
            return {}
        if self._batch.target is not None:
            outputs, upstream = [self._loss], [torch.ones_like(self._loss)]
        else:
            outputs = [self._outputs[name] for name in self._batch.upstream]
            upstream = [torch.tensor(array) for array in self._batch.upstream.values()]
        parameters = dict(self.parameters())
        leaves = {name: tensor for name, tensor in self._inputs.items() if tensor.requires_grad}
        leaves |= {f"{PARAM}{name}": value for name, value in parameters.items() if value.requires_grad}
        cuts = self._taps.cuts
        outputs += [cut.made for cut in cuts.values()]
        upstream += [cut.gradient for cut in cuts.values()]
        leaves |= {name: cut.given for name, cut in cuts.items()}
        joined = [(y, dy) for y, dy in zip(outputs, upstream, strict=True) if y.requires_grad]
        empty = any(tensor.numel() == 0 for name, tensor in self._inputs.items() if "_state" not in name)
        if not joined:
            return {}
        grads = torch.autograd.grad(
            [y for y, _ in joined],
            [*leaves.values(), *self._taps.anchors],
            [dy for _, dy in joined],
            allow_unused=True,
            materialize_grads=empty,  # of an empty sequence zero is right
        )
        self._grads = dict(zip(leaves, grads, strict=False))  # those of the anchors come last
        reached = {name: grad for name, grad in self._grads.items() if grad is not None}
        arrived = self._taps.gradients
        return _arrays(reached | {name: arrived[name] for name in self.intermediates if name in arrived})

    def step(self) -> Arrays:
        """Take a step of torch's AdamW, as `Runner.step`."""
        settings = self.case.optimizer
        if settings is None:
            raise ValueError(f"{self.case.name} has no optimizer")
        parameters = dict(self.parameters())
        if self._optimizer is None:
            self._optimizer = self.optimizer(parameters, settings)
        for name, parameter in parameters.items():
            parameter.grad = self._grads.get(f"{PARAM}{name}")
        self._optimizer.step()
        results: dict[str, Tensor] = {f"{PARAM}{name}": value for name, value in parameters.items()}
        for name, parameter in parameters.items():
            state = self._optimizer.state[parameter]
            results |= {f"{moment}.{name}": state[moment] for moment in _MOMENTS if moment in state}
        buffers = self.model.named_buffers()
        results |= {f"buffer.{name}": value for name, value in buffers if value.is_floating_point()}
        return LazyArrays({name: partial(_copy, value) for name, value in results.items()})

    def optimizer(self, parameters: Mapping[str, nn.Parameter], settings: AdamW) -> torch.optim.Optimizer:
        """Build AdamW with two groups: with weight decay and without."""
        decayed = [value for name, value in parameters.items() if settings.decays(name)]
        undecayed = [value for name, value in parameters.items() if not settings.decays(name)]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0}]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _copy(tensor: Tensor) -> Array:
    array: Array = tensor.detach().to_dense().numpy().copy()
    return array


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().to_dense().numpy() for name, tensor in tensors.items()}
