"""The PyTorch twin as a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mamba2_bridge._extras import require

require("torch", "mamba2_bridge.parity.twin")

import torch  # noqa: E402 (only now is it sure to be there)

from mamba2_bridge.parity.runners import Step  # noqa: E402
from mamba2_bridge.torch.reference import Mamba2, Mamba2Forecaster, Scan, State  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.runners import Problem, Results
    from mamba2_bridge.parity.tolerances import DType

_UNDECAYED = ("A_log", "D", "dt_bias", "norm.weight", "norm_f.weight", "bias")


class TwinRunner:
    """`mamba2_bridge.torch.reference`.

    Parameters
    ----------
    scan
        ``"recurrence"``, the yardstick, or ``"chunked"``.
    """

    def __init__(self, scan: Scan = "recurrence") -> None:
        self.scan = scan

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"twin ({self.scan})"

    def mixer(self, config: Mapping[str, Any], dtype: DType) -> Mamba2:
        """Build the mixer; a place to make it another one."""
        return Mamba2(**config, dtype=getattr(torch, dtype), scan=self.scan)

    def run(self, case: Case, dtype: DType) -> Results:
        """Forward and backward over the whole sequence, as `Runner.run`."""
        case = case.astype(dtype)
        model = self._mixer_of(case, dtype)
        inputs = {"u": torch.from_numpy(case.u).requires_grad_()}
        state = None
        if case.state is not None:
            state = State(*(torch.from_numpy(part).requires_grad_() for part in case.state))
            inputs |= {"init.conv_state": state.conv_state, "init.ssm_state": state.ssm_state}
        out, final = model(inputs["u"], state, return_state=True)
        outputs = {"out": out, "final.conv_state": final.conv_state, "final.ssm_state": final.ssm_state}
        upstream = [case.dy] if case.dstate is None else [case.dy, *case.dstate]
        inputs |= {f"param.{name}": parameter for name, parameter in model.named_parameters()}
        grads = torch.autograd.grad(
            list(outputs.values())[: len(upstream)],
            list(inputs.values()),
            [torch.from_numpy(value) for value in upstream],
            allow_unused=True,
            materialize_grads=case.u.size == 0,  # of an empty sequence zero is right
        )
        reached = {f"grad.{name}": grad for name, grad in zip(inputs, grads, strict=True) if grad is not None}
        return {name: tensor.detach().numpy() for name, tensor in (outputs | reached).items()}

    def run_steps(self, case: Case, dtype: DType) -> Results:
        """Go through the sequence token by token, as `Runner.run_steps`."""
        case = case.astype(dtype)
        model = self._mixer_of(case, dtype)
        batch = case.u.shape[0]
        outputs = []
        with torch.no_grad():
            state = model.init_state(batch)
            if case.state is not None:
                state = State(*(torch.from_numpy(part) for part in case.state))
            for u_t in torch.from_numpy(case.u).unbind(1):
                y_t, state = model.step(u_t, state)
                outputs.append(y_t)
        out = torch.stack(outputs, dim=1).numpy() if outputs else case.u
        return {
            "step.out": out,
            "step.conv_state": state.conv_state.numpy(),
            "step.ssm_state": state.ssm_state.numpy(),
        }

    def train(self, problem: Problem, dtype: DType) -> Iterator[Step]:
        """Take the problem's optimizer steps one by one, as `Runner.train`."""
        model: torch.nn.Module
        if problem.forecaster is None:
            model = self.mixer(problem.config, dtype)
        else:
            options = {**problem.config, "dtype": getattr(torch, dtype), "scan": self.scan}
            model = Mamba2Forecaster(**problem.forecaster._asdict(), **options)
        _load(model, problem.params, dtype)
        optimizer = self.optimizer(model, problem)
        for inputs, target in problem.batches:
            prediction = model(torch.from_numpy(inputs.astype(dtype)))
            loss = (prediction - torch.from_numpy(target.astype(dtype))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            params = {name: value.detach().clone().numpy() for name, value in model.named_parameters()}
            yield Step(loss.item(), params)

    def optimizer(self, model: torch.nn.Module, problem: Problem) -> torch.optim.Optimizer:
        """Build PyTorch's AdamW with the native optimizer's two groups."""
        settings = problem.optimizer
        decayed: list[torch.nn.Parameter] = []
        undecayed: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            (undecayed if name.endswith(_UNDECAYED) else decayed).append(parameter)
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0}]
        return torch.optim.AdamW(
            groups,
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )

    def _mixer_of(self, case: Case, dtype: DType) -> Mamba2:
        model = self.mixer(case.config, dtype)
        _load(model, case.params, dtype)
        return model


def _load(model: torch.nn.Module, params: Mapping[str, Any], dtype: DType) -> None:
    model.load_state_dict({name: torch.from_numpy(value.astype(dtype)) for name, value in params.items()})
