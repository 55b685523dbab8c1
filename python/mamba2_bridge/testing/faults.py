"""A kit of faults: the twin, broken in one place each, to show that the net holds.

Each fault is one that people have made: a sign, a factor, groups tiled instead of repeated, a clamp forgotten
in the step, a value squeezed through float32, a tensor cut from the graph, weight decay where none belongs.
The project's tests plant each of them and require that `mamba2_bridge.parity.compare` finds it, and finds it
in the stage where it was planted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.mamba2_cases import (
    by_token,
    draw_parameters,
    draw_state,
    exact,
    forecaster_case,
    generator,
    mixer_case,
    noise_case,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mamba2_bridge.parity.cases import AdamW, Case
    from mamba2_bridge.torch.reference import Mamba2, Mamba2Forecaster


@dataclass(frozen=True)
class Fault:
    """Something wrong with a model, its loss or its optimizer.

    Attributes
    ----------
    name
        What is wrong.
    stage
        Where: what a report has to name.
    case
        Makes a case in which it shows.
    model
        Breaks a twin that was just built.
    loss
        Replaces the mean squared error of prediction and target.
    optimizer
        Replaces AdamW.
    names
        Parameters that answer to another name.
    """

    name: str
    stage: str
    case: Callable[[], Case]
    model: Callable[[Any], None] | None = None
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    optimizer: Callable[[Mapping[str, nn.Parameter], AdamW], torch.optim.Optimizer] | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


class FaultyTwin(TwinRunner):
    """The twin with one fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"twin with a fault: {self.fault.name}"

    def build(self, case: Case, dtype: torch.dtype) -> nn.Module:
        """Make the model, and break it."""
        model = super().build(case, dtype)
        if self.fault.model is not None:
            self.fault.model(model)
        return model

    def parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Return the parameters, some perhaps by wrong names."""
        return [(self.fault.names.get(name, name), value) for name, value in super().parameters()]

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Mean squared error, or what the fault makes of it."""
        return (self.fault.loss or super().loss)(prediction, target)

    def optimizer(self, parameters: Mapping[str, nn.Parameter], settings: AdamW) -> torch.optim.Optimizer:
        """AdamW, or what the fault makes of it."""
        return (self.fault.optimizer or super().optimizer)(parameters, settings)


@cache
def mixer(**changes: Any) -> Case:
    """Make a case in which every option of a mixer is on."""
    config: dict[str, Any] = {
        "d_model": 12, "d_state": 6, "d_conv": 4, "expand": 2, "headdim": 4, "d_ssm": 16, "ngroups": 2,
        "norm_groups": 2, "D_has_hdim": True, "dt_limit": (0.1, 0.6), "bias": True, "chunk_size": 16,
        **changes,
    }  # fmt: skip
    rng = generator(0, "faults")
    shape = (2, 33, config["d_model"])
    params = draw_parameters(rng, config)
    u, dy = (exact(rng.standard_normal(shape)) for _ in range(2))
    state, dstate = (draw_state(rng, config, 2) for _ in range(2))
    return mixer_case("mixer", config, params, u, dy, state, dstate)


def _square() -> Case:
    return mixer(expand=1, d_ssm=None, d_model=16)


def _stepped() -> Case:
    return by_token(mixer())


def _trained() -> Case:
    return noise_case(steps=3)


def _after(method: str, change: Callable[[Mamba2, Any], Any]) -> Callable[[Any], None]:
    """Break a mixer: what ``method`` returns goes through ``change``."""

    def break_(model: Any) -> None:
        of, _, name = method.rpartition(".")
        owner = model.get_submodule(of)
        healthy = getattr(owner, name)
        setattr(owner, name, lambda *arguments: change(model, healthy(*arguments)))

    return break_


def _around(method: str, broken: Callable[..., Any]) -> Callable[[Any], None]:
    """Break a mixer: ``broken`` is called in place of ``method``, with mixer and healthy method first."""

    def break_(model: Any) -> None:
        of, _, name = method.rpartition(".")
        owner = model.get_submodule(of)
        healthy = getattr(owner, name)
        setattr(owner, name, lambda *arguments: broken(model, healthy, *arguments))

    return break_


def _first(change: Callable[[Tensor], Tensor]) -> Callable[[Mamba2, Any], Any]:
    """Change the first of two results."""
    return lambda model, results: (change(results[0]), *results[1:])


def _second(change: Callable[[Tensor], Tensor]) -> Callable[[Mamba2, Any], Any]:
    return lambda model, results: (results[0], change(results[1]))


def _only(change: Callable[[Tensor], Tensor]) -> Callable[[Mamba2, Any], Any]:
    return lambda model, result: change(result)


def _through_f32(x: Tensor) -> Tensor:
    return x.float().to(x.dtype)


def _earlier(x: Tensor) -> Tensor:
    """Delay a sequence (b, l, ...) by a token."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def _gradient(parameter: str, change: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    """Change a parameter's gradient, and nothing else."""

    def break_(model: Any) -> None:
        model.get_parameter(parameter).register_hook(change)

    return break_


def _set(path: str, value: Any) -> Callable[[Any], None]:
    def break_(model: Any) -> None:
        of, _, name = path.rpartition(".")
        setattr(model.get_submodule(of), name, value)

    return break_


def _projection(name: str, change: Callable[[Any, Tensor], Tensor]) -> Callable[[Any], None]:
    """Replace a linear layer's forward."""

    def break_(model: Any) -> None:
        layer = model.get_submodule(name)
        layer.forward = lambda x: change(layer, x)

    return break_


def _columns(model: Mamba2, zxbcdt: Tensor) -> Tensor:
    """Put x where z belongs, and z where x does."""
    at = 2 * model.d_mlp
    z, x = zxbcdt[..., at : at + model.d_ssm], zxbcdt[..., at + model.d_ssm : at + 2 * model.d_ssm]
    return torch.cat([zxbcdt[..., :at], x, z, zxbcdt[..., at + 2 * model.d_ssm :]], dim=-1)


def _flipped_taps(model: Mamba2, healthy: Any, xBC: Tensor, state: Tensor) -> Any:
    weight = model.conv1d.weight
    model.conv1d.weight = nn.Parameter(weight.flip(-1))
    try:
        return healthy(xBC, state)
    finally:
        model.conv1d.weight = weight


def _no_conv_bias(model: Mamba2, healthy: Any, xBC: Tensor, state: Tensor) -> Any:
    bias = model.conv1d.bias
    model.conv1d.bias = None
    try:
        return healthy(xBC, state)
    finally:
        model.conv1d.bias = bias


def _unclamped(model: Mamba2, healthy: Any, dt: Tensor) -> Tensor:
    limit, model.dt_limit = model.dt_limit, (0.0, math.inf)
    try:
        return healthy(dt)  # type: ignore[no-any-return]
    finally:
        model.dt_limit = limit


def _tiled(model: Mamba2, healthy: Any, x: Any, dt: Any, A: Any, B: Tensor, C: Tensor, *rest: Any) -> Any:
    """Let head h read group h modulo ngroups."""
    order = torch.arange(model.nheads) % model.ngroups
    return healthy(x, dt, A, B[:, :, order], C[:, :, order], *rest)


def _layer_norm(model: Mamba2, healthy: Any, y: Tensor, z: Tensor) -> Tensor:
    gated = y * F.silu(z)
    parts = gated.unflatten(-1, (model.norm.groups, -1))  # type: ignore[union-attr]
    centred = (parts - parts.mean(-1, keepdim=True)).flatten(-2)
    return healthy(centred / F.silu(z), z)  # type: ignore[no-any-return]


def _sum_over_layers(model: Mamba2Forecaster) -> None:
    """Drop the residual of the second layer."""
    block = model.layers[1]
    mixer_of = block.mixer

    def forward(r: Tensor, state: Any) -> Any:
        out, state = mixer_of(block.tap("norm", block.norm(r)), state, return_state=True)  # type: ignore[operator]
        return block.tap("", out), state  # type: ignore[operator]

    block.forward = forward


class _Adam(torch.optim.AdamW):
    """AdamW with one line of its rule changed."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], settings: AdamW, rule: str) -> None:
        decayed = [p for name, p in parameters.items() if not name.endswith(settings.undecayed)]
        undecayed = [p for name, p in parameters.items() if name.endswith(settings.undecayed)]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0}]
        super().__init__(
            groups,
            lr=settings.lr,
            betas=settings.betas[::-1] if rule == "betas" else settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self.rule = rule

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step."""
        del closure
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                grad = p.grad
                if self.rule == "L2":
                    grad = grad + group["weight_decay"] * p
                else:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].lerp_(grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                correction1, correction2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                if self.rule == "no correction":
                    correction1 = correction2 = 1.0
                if self.rule == "eps inside":
                    root = (state["exp_avg_sq"] / correction2 + group["eps"]).sqrt()
                else:
                    root = (state["exp_avg_sq"] / correction2).sqrt() + group["eps"]
                p.sub_(group["lr"] * state["exp_avg"] / correction1 / root)


def _rule(rule: str) -> Callable[[Mapping[str, nn.Parameter], AdamW], torch.optim.Optimizer]:
    return lambda parameters, settings: _Adam(parameters, settings, rule)


def _decays_all(parameters: Mapping[str, nn.Parameter], settings: AdamW) -> torch.optim.Optimizer:
    return TwinRunner().optimizer(parameters, replace(settings, undecayed=()))


def _forgets_one(parameters: Mapping[str, nn.Parameter], settings: AdamW) -> torch.optim.Optimizer:
    kept = {name: parameter for name, parameter in parameters.items() if name != "D"}
    return TwinRunner().optimizer(kept, settings)


FAULTS: tuple[Fault, ...] = (
    # The input projection.
    Fault("in_proj: sign", "in_proj", mixer, _after("in_proj.forward", _only(torch.neg))),
    Fault("in_proj: z and x swapped", "in_proj", mixer, _after("in_proj.forward", _columns)),
    Fault(
        "in_proj: bias dropped",
        "in_proj",
        mixer,
        _projection("in_proj", lambda layer, x: F.linear(x, layer.weight)),
    ),
    Fault("in_proj: through f32", "in_proj", mixer, _after("in_proj.forward", _only(_through_f32))),
    Fault(
        "in_proj: weight cut from the graph",
        "in_proj",
        mixer,
        _projection("in_proj", lambda layer, x: F.linear(x, layer.weight.detach(), layer.bias)),
    ),
    Fault(
        "in_proj: input cut from the graph",
        "in_proj",
        mixer,
        _projection("in_proj", lambda layer, x: F.linear(x.detach(), layer.weight, layer.bias)),
    ),
    # The convolution.
    Fault("conv: a token late", "conv", mixer, _after("_convolve", _first(_earlier))),
    Fault("conv: taps flipped", "conv", mixer, _around("_convolve", _flipped_taps)),
    Fault("conv: bias dropped", "conv", mixer, _around("_convolve", _no_conv_bias)),
    Fault("conv: SiLU twice", "conv", mixer, _after("_convolve", _first(F.silu))),
    Fault(
        "conv: state not passed",
        "conv",
        mixer,
        _around("_convolve", lambda model, healthy, xBC, state: healthy(xBC, 0 * state)),
    ),
    Fault("conv: state a column late", "conv", mixer, _after("_convolve", _second(lambda s: s.roll(1, -1)))),
    Fault(
        "conv: state cut from the graph",
        "conv",
        mixer,
        _around("_convolve", lambda model, healthy, xBC, state: healthy(xBC, state.detach())),
    ),
    Fault("conv: cut from the graph", "conv", mixer, _after("_convolve", _first(Tensor.detach))),
    # The step size.
    Fault(
        "dt: bias dropped",
        "dt",
        mixer,
        _around("_step_size", lambda model, healthy, dt: healthy(dt - model.dt_bias)),
    ),
    Fault("dt: clamp ignored", "dt", mixer, _around("_step_size", _unclamped)),
    Fault("dt: clamp ignored in the step", "dt", _stepped, _around("_step_size", _unclamped)),
    Fault(
        "dt: softplus of twice",
        "dt",
        mixer,
        _around("_step_size", lambda model, healthy, dt: healthy(2 * dt + model.dt_bias)),
    ),
    Fault("dt: cut from the graph", "dt", mixer, _after("_step_size", _only(Tensor.detach))),
    Fault("dt: through f32", "dt", mixer, _after("_step_size", _only(_through_f32))),
    # The scan.
    Fault("scan: groups tiled", "scan", mixer, _around("_scan", _tiled)),
    Fault(
        "scan: B and C swapped",
        "scan",
        mixer,
        _around("_scan", lambda model, healthy, x, dt, A, B, C, *rest: healthy(x, dt, A, C, B, *rest)),
    ),
    Fault(
        "scan: A without exp",
        "scan",
        mixer,
        _around("_scan", lambda model, healthy, x, dt, A, *rest: healthy(x, dt, -model.A_log.abs(), *rest)),
    ),
    Fault(
        "scan: A cut from the graph",
        "scan",
        mixer,
        _around("_scan", lambda model, healthy, x, dt, A, *rest: healthy(x, dt, A.detach(), *rest)),
    ),
    Fault(
        "scan: f32 inside",
        "scan",
        mixer,
        _around(
            "_scan",
            lambda model, healthy, *inputs: [
                y.to(inputs[0].dtype) for y in healthy(*(i.float() for i in inputs))
            ],
        ),
    ),
    Fault(
        "scan: no skip",
        "scan",
        mixer,
        _around("_scan", lambda model, healthy, *inputs: healthy(*inputs[:5], 0 * inputs[5], inputs[6])),
    ),
    Fault(
        "scan: skip of another head",
        "scan",
        mixer,
        _around(
            "_scan", lambda model, healthy, *inputs: healthy(*inputs[:5], inputs[5].roll(1, 0), inputs[6])
        ),
    ),
    Fault(
        "scan: state not passed",
        "scan",
        mixer,
        _around("_scan", lambda model, healthy, *inputs: healthy(*inputs[:6], torch.zeros_like(inputs[6]))),
    ),
    Fault("scan: last state doubled", "scan", mixer, _after("_scan", _second(lambda s: 2 * s))),
    Fault("scan: last state cut from the graph", "scan", mixer, _after("_scan", _second(Tensor.detach))),
    Fault("scan: a token late", "scan", mixer, _after("_scan", _first(_earlier))),
    Fault("scan: cut from the graph", "scan", mixer, _after("_scan", _first(Tensor.detach))),
    # The gated norm.
    Fault("norm: one group", "norm", mixer, _set("norm.groups", 1)),
    Fault("norm: gate order", "norm", mixer, _set("norm.norm_before_gate", True)),
    Fault("norm: eps", "norm", mixer, _set("norm.eps", 1e-6)),
    Fault("norm: mean subtracted", "norm", mixer, _around("norm.forward", _layer_norm)),
    Fault(
        "norm: weight dropped",
        "norm",
        mixer,
        _around("norm.forward", lambda model, healthy, y, z: healthy(y, z) / model.norm.weight),
    ),
    Fault(
        "norm: gate cut from the graph",
        "norm",
        mixer,
        _around("norm.forward", lambda model, healthy, y, z: healthy(y, z.detach())),
    ),
    Fault("norm: cut from the graph", "norm", mixer, _after("norm.forward", _only(Tensor.detach))),
    # The output projection.
    Fault(
        "out_proj: transposed",
        "out_proj",
        _square,
        _projection("out_proj", lambda layer, x: F.linear(x, layer.weight.T, layer.bias)),
    ),
    Fault(
        "out_proj: bias dropped",
        "out_proj",
        mixer,
        _projection("out_proj", lambda layer, x: F.linear(x, layer.weight)),
    ),
    Fault("out_proj: factor 2", "out_proj", mixer, _after("out_proj.forward", _only(lambda y: 2 * y))),
    Fault("out_proj: through f32", "out_proj", mixer, _after("out_proj.forward", _only(_through_f32))),
    # Gradients alone.
    Fault("gradient of dt_bias doubled", "dt", mixer, _gradient("dt_bias", lambda g: 2 * g)),
    Fault("gradient of A_log zero", "scan", mixer, _gradient("A_log", torch.zeros_like)),
    Fault("gradient of D flipped", "scan", mixer, _gradient("D", torch.neg)),
    Fault("gradient of norm.weight halved", "norm", mixer, _gradient("norm.weight", lambda g: g / 2)),
    Fault(
        "gradient of conv1d.weight flipped in time",
        "conv",
        mixer,
        _gradient("conv1d.weight", lambda g: g.flip(-1)),
    ),
    Fault(
        "gradient of out_proj.weight in f32", "out_proj", mixer, _gradient("out_proj.weight", _through_f32)
    ),
    Fault(
        "gradient of in_proj.weight with NaN",
        "in_proj",
        mixer,
        _gradient("in_proj.weight", lambda g: torch.where(g == g.max(), math.nan, g)),
    ),
    # Names.
    Fault(
        "dt_bias and A_log under each other's name",
        "dt",
        mixer,
        names={"dt_bias": "A_log", "A_log": "dt_bias"},
    ),
    Fault("D under an old name", "parameters", mixer, names={"D": "skip"}),
    # Loss and optimizer.
    Fault(
        "loss: through f32",
        "loss",
        _trained,
        loss=lambda y, target: _through_f32((y - target).square().mean()),
    ),
    Fault("loss: a sum", "loss", _trained, loss=lambda y, target: (y - target).square().sum()),
    Fault("AdamW: decay on all", "optimizer", _trained, optimizer=_decays_all),
    Fault("AdamW: L2 in place of decay", "optimizer", _trained, optimizer=_rule("L2")),
    Fault("AdamW: no bias correction", "optimizer", _trained, optimizer=_rule("no correction")),
    Fault("AdamW: eps inside the root", "optimizer", _trained, optimizer=_rule("eps inside")),
    Fault("AdamW: betas swapped", "optimizer", _trained, optimizer=_rule("betas")),
    Fault("AdamW: a parameter forgotten", "optimizer", _trained, optimizer=_forgets_one),
    # The stack around the mixers.
    Fault(
        "forecaster: second layer's norm eps",
        "layers.1.norm",
        forecaster_case,
        _set("layers.1.norm.eps", 1e-3),
    ),
    Fault("forecaster: second layer without residual", "layers.1 (sum)", forecaster_case, _sum_over_layers),
    Fault(
        "forecaster: second layer's scan",
        "layers.1.mixer.scan",
        forecaster_case,
        lambda model: _after("_scan", _first(torch.neg))(model.layers[1].mixer),
    ),
    Fault(
        "forecaster: final norm's weight dropped",
        "norm_f",
        forecaster_case,
        _around("norm_f.forward", lambda model, healthy, x: healthy(x) / model.norm_f.weight),
    ),
    Fault(
        "forecaster: head's bias dropped",
        "head",
        forecaster_case,
        _projection("head", lambda layer, x: F.linear(x, layer.weight)),
    ),
    Fault(
        "forecaster: encoder cut from the graph",
        "encoder",
        forecaster_case,
        _after("encoder.forward", _only(Tensor.detach)),
    ),
)
"""All of them, in the order of the stages."""
