"""Run the twin on golden cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mamba2_bridge.torch.reference import Mamba2, State, ssd_chunked, ssd_recurrence

if TYPE_CHECKING:
    import numpy as np

    from golden_cases import BlockCase, SsdCase


def run_ssd(case: SsdCase, dtype: str, chunk_size: int | None) -> dict[str, np.ndarray[Any, Any]]:
    """Forward and backward of a scan case; chunk_size None is the recurrence."""
    case = case.astype(dtype)
    inputs = {name: torch.from_numpy(value).requires_grad_() for name, value in case.inputs.items()}
    arguments = {"initial_state" if name == "init" else name: value for name, value in inputs.items()}
    y, final = (
        ssd_recurrence(**arguments) if chunk_size is None else ssd_chunked(**arguments, chunk_size=chunk_size)
    )
    results = {"y": y, "final": final}
    results |= gradients([y, final], inputs, [case.upstream["y"], case.upstream["final"]], empty=False)
    return {name: tensor.detach().numpy() for name, tensor in results.items()}


def gradients(
    outputs: list[torch.Tensor], inputs: dict[str, torch.Tensor], upstream: list[Any], *, empty: bool
) -> dict[str, torch.Tensor]:
    """Vector-Jacobian product, as ``grad.<input>``. Only an empty sequence may leave an input unreached."""
    grads = torch.autograd.grad(
        outputs,
        list(inputs.values()),
        [torch.from_numpy(value) for value in upstream],
        materialize_grads=empty,
    )
    return dict(zip((f"grad.{name}" for name in inputs), grads, strict=True))
