"""Run the twin on golden cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mamba2_bridge.torch.reference import Mamba2, State, ssd_chunked, ssd_recurrence

if TYPE_CHECKING:
    import numpy as np

    from golden_cases import BlockCase, SsdCase


def model_of(case: BlockCase, dtype: str, **options: Any) -> Mamba2:
    """The twin with a case's config and parameters."""
    model = Mamba2(**case.config, dtype=getattr(torch, dtype), **options)
    model.load_state_dict(
        {name: torch.from_numpy(value.astype(dtype)) for name, value in case.params.items()}
    )
    return model


def run_block(case: BlockCase, dtype: str, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Forward and backward of a block case: results under the names that `case.expected` has."""
    case = case.astype(dtype)
    model = model_of(case, dtype, **options)
    inputs = {"u": torch.from_numpy(case.u).requires_grad_()}
    state = None
    if case.state is not None:
        state = State(*(torch.from_numpy(part).requires_grad_() for part in case.state))
        inputs |= {"init.conv_state": state.conv_state, "init.ssm_state": state.ssm_state}
    out, final = model(inputs["u"], state, return_state=True)
    results = {"out": out, "final.conv_state": final.conv_state, "final.ssm_state": final.ssm_state}
    upstream = [case.dy] if case.dstate is None else [case.dy, *case.dstate]
    inputs |= {f"param.{name}": parameter for name, parameter in model.named_parameters()}
    results |= gradients(list(results.values())[: len(upstream)], inputs, upstream, empty=case.u.size == 0)
    return {name: tensor.detach().numpy() for name, tensor in results.items()}


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
