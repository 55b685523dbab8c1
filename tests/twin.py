"""Run the twin's scan on golden cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mamba2_bridge.torch.reference import ssd_chunked, ssd_recurrence

if TYPE_CHECKING:
    import numpy as np

    from golden_cases import SsdCase


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
