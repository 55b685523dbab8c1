"""The native models as a runner, through nothing but the package's public numpy contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import mamba2_bridge as mb
from mamba2_bridge.parity.runners import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mamba2_bridge.parity.cases import Case, State
    from mamba2_bridge.parity.runners import Problem, Results
    from mamba2_bridge.parity.tolerances import DType


class NativeRunner:
    """`mamba2_bridge.Mamba2` and `Mamba2Forecaster`.

    Parameters
    ----------
    kernels
        ``"auto"``, ``"fused"`` or ``"composed"``.
    """

    def __init__(self, kernels: str = "auto") -> None:
        self.kernels = kernels

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"native ({self.kernels})"

    def run(self, case: Case, dtype: DType) -> Results:
        """Forward and backward over the whole sequence, as `Runner.run`."""
        case = case.astype(dtype)
        model = self._mixer(case.config, case.params, dtype)
        output = model.forward(case.u, _native_state(case.state))
        grads = output.backward(case.dy, _native_state(case.dstate))
        results = {
            "out": output.y,
            "final.conv_state": output.state.conv_state,
            "final.ssm_state": output.state.ssm_state,
            "grad.u": grads.input,
        }
        results |= {f"grad.param.{name}": value for name, value in grads.items()}
        if grads.state is not None:
            results["grad.init.conv_state"] = grads.state.conv_state
            results["grad.init.ssm_state"] = grads.state.ssm_state
        return results

    def run_steps(self, case: Case, dtype: DType) -> Results:
        """Go through the sequence token by token, as `Runner.run_steps`."""
        case = case.astype(dtype)
        model = self._mixer(case.config, case.params, dtype)
        batch, seqlen, _ = case.u.shape
        state = _native_state(case.state) or model.init_state(batch)
        out = np.empty_like(case.u)
        for t in range(seqlen):
            out[:, t], state = model.step(case.u[:, t], state)
        return {"step.out": out, "step.conv_state": state.conv_state, "step.ssm_state": state.ssm_state}

    def train(self, problem: Problem, dtype: DType) -> Iterator[Step]:
        """Take the problem's optimizer steps one by one, as `Runner.train`."""
        params = {name: value.astype(dtype) for name, value in problem.params.items()}
        model: mb.Model[Any]
        if problem.forecaster is None:
            model = self._mixer(problem.config, params, dtype)
        else:
            config = mb.Mamba2ForecasterConfig(
                mixer=mb.Mamba2Config(**problem.config), **problem.forecaster._asdict()
            )
            model = mb.Mamba2Forecaster(config, dtype=dtype, kernels=self.kernels)
            model.load_state_dict(params)
        settings = problem.optimizer
        optimizer = mb.optim.AdamW(
            model,
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        for inputs, target in problem.batches:
            loss = model.forward(inputs.astype(dtype)).mse_loss(target.astype(dtype))
            optimizer.step(loss.backward())
            yield Step(loss.item(), dict(model.state_dict()))

    def _mixer(self, config: Mapping[str, Any], params: Mapping[str, Any], dtype: DType) -> mb.Mamba2:
        model = mb.Mamba2(mb.Mamba2Config(**config), dtype=dtype, kernels=self.kernels)
        model.load_state_dict(dict(params))
        return model


def _native_state(state: State | None) -> mb.Mamba2State | None:
    return None if state is None else mb.Mamba2State(state.conv_state, state.ssm_state)
