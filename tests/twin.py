"""Run the twin: its scan on golden cases, and a whole mixer to see what fp32 loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mamba2_bridge.parity.measures import relative_error
from mamba2_bridge.torch.reference import Mamba2, State, ssd_chunked, ssd_recurrence

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    import mamba2_bridge as mb
    from golden_cases import SsdCase

    Array = np.ndarray[Any, Any]


def run_ssd(case: SsdCase, dtype: str, chunk_size: int | None) -> dict[str, np.ndarray[Any, Any]]:
    """Forward and backward of a scan case; chunk_size None is the recurrence."""
    case = case.astype(dtype)
    inputs = {name: torch.from_numpy(value).requires_grad_() for name, value in case.inputs.items()}
    arguments = {"initial_state" if name == "init" else name: value for name, value in inputs.items()}
    y, final = (
        ssd_recurrence(**arguments) if chunk_size is None else ssd_chunked(**arguments, chunk_size=chunk_size)
    )
    results = {"y": y, "final": final}
    upstream = [torch.from_numpy(case.upstream[name]) for name in results]
    grads = torch.autograd.grad(list(results.values()), list(inputs.values()), upstream)
    results |= {f"grad.{name}": grad for name, grad in zip(inputs, grads, strict=True)}
    return {name: tensor.detach().numpy() for name, tensor in results.items()}


def run_mixer(
    twin: Mamba2,
    u: Array,
    dy: Array,
    state: mb.Mamba2State | None = None,
    dstate: mb.Mamba2State | None = None,
) -> dict[str, Array]:
    """Forward and backward of a mixer in its own dtype; results named as the tests name the native ones."""
    dtype = twin.A_log.dtype

    def tensors(of: mb.Mamba2State) -> list[torch.Tensor]:
        return [torch.from_numpy(part).to(dtype) for part in (of.conv_state, of.ssm_state)]

    inputs = {"u": torch.from_numpy(u).to(dtype).requires_grad_()}
    if state is not None:
        names = ("init.conv_state", "init.ssm_state")
        inputs |= {name: part.requires_grad_() for name, part in zip(names, tensors(state), strict=True)}
    start = State(*list(inputs.values())[1:]) if state is not None else None
    y, final = twin(inputs["u"], start, return_state=True)
    outputs = {"out": y, "final.conv_state": final.conv_state, "final.ssm_state": final.ssm_state}
    upstream = [torch.from_numpy(dy).to(dtype)]
    upstream += tensors(dstate) if dstate is not None else [torch.zeros_like(part) for part in final]
    inputs |= {f"param.{name}": parameter for name, parameter in twin.named_parameters()}
    grads = torch.autograd.grad(
        list(outputs.values()), list(inputs.values()), upstream, allow_unused=True, materialize_grads=True
    )
    outputs |= {f"grad.{name}": grad for name, grad in zip(inputs, grads, strict=True)}
    return {name: tensor.detach().numpy() for name, tensor in outputs.items()}


def losses_in_fp32(
    config: dict[str, Any],
    params: Mapping[str, Array],
    u: Array,
    *others: Any,
    draws: int = 3,
) -> dict[str, float]:
    """Give what fp32 loses of each tensor, the worst of some draws of its roundings.

    Of one draw alone, a lucky one would pass for the tensor's condition. The draws differ in the form of the
    scan and, by so little that what cancels still cancels, in the scale of ``u``; `u` and `others` are the
    arguments of `run_mixer`.
    """
    losses: dict[str, float] = {}
    twins = []
    for dtype in (torch.float32, torch.float64):
        twin = Mamba2(**config, dtype=dtype)
        twin.load_state_dict({name: torch.from_numpy(value).to(dtype) for name, value in params.items()})
        twins.append(twin)
    for draw in range(draws):
        for twin in twins:
            twin.scan = "recurrence" if draw % 2 == 0 else "chunked"
        narrow, wide = (run_mixer(twin, (1 + draw / 2**18) * u, *others) for twin in twins)
        for name, value in wide.items():
            losses[name] = max(losses.get(name, 0.0), relative_error(narrow[name], value))
    return losses
