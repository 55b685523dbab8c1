"""Optimizers that step a model's native parameters with native gradients."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from mamba2_bridge import _native
from mamba2_bridge.exceptions import ConfigError, StateDictError
from mamba2_bridge.gradients import native_gradients
from mamba2_bridge.model import Model
from mamba2_bridge.named import NamedArrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mamba2_bridge.gradients import Gradients

NO_DECAY: tuple[str, ...] = tuple(_native.NO_DECAY)
"""Glob patterns of the names that get no weight decay by default: A_log, D, dt_bias, norms and biases."""


class Optimizer:
    """What both optimizers share."""

    def __init__(self, native: _native.Optimizer) -> None:
        self._native = native

    def step(self, grads: Gradients[Any]) -> None:
        """Change the model's parameters by one step.

        Outputs made before can't be differentiated afterwards.

        Raises
        ------
        MissingGradientError, StateDictError, ShapeError, DTypeError
            Gradients of other parameters than the model's; nothing is changed.
        TypeError
            ``grads`` isn't `Gradients`.
        """
        self._native.step(native_gradients("grads", grads))

    @property
    def lr(self) -> float:
        """Learning rate of the steps to come."""
        return self._native.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._native.set_lr(_real("lr", value))

    @property
    def moments(self) -> NamedArrays:
        """The moments that the last step left, as `state_dict` names them, each copied when it is read."""
        _, _, moments = self._native.state()
        return NamedArrays(moments)

    def state_dict(self) -> dict[str, Any]:
        """All that a bit-exact continuation needs besides the model's parameters.

        Returns
        -------
        dict
            ``step`` (int), the hyperparameters (floats) and each moment as an array named
            ``<moment>.<parameter>``, e.g. ``exp_avg.A_log``.
        """
        step, scalars, moments = self._native.state()
        return {"step": step, **scalars, **NamedArrays(moments)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`'s result: all of it, or none and an error.

        Raises
        ------
        StateDictError
            An entry is missing, isn't a number, or belongs to another optimizer or another model.
        ShapeError, DTypeError
            A moment that doesn't fit its parameter.
        """
        scalars, arrays = {}, {}
        for name, value in state.items():
            if "." in name:
                arrays[name] = value
            elif name != "step":
                scalars[name] = _number(name, value)
        if "step" not in state:
            raise StateDictError("step is missing; nothing was loaded")
        self._native.load_state(_step(state["step"]), scalars, arrays)


class AdamW(Optimizer):
    """AdamW, step by step as ``torch.optim.AdamW`` computes it.

    Parameters
    ----------
    model
        Whose parameters are stepped.
    lr, betas, eps, weight_decay
        Hyperparameters, torch's defaults.
    no_decay
        Glob patterns of the names that get no weight decay; ``()``: all decay.
    freeze
        Glob patterns of the names that are not trained, e.g. ``["layers.0.*"]``.

    Raises
    ------
    ConfigError
        A hyperparameter out of range, or a pattern of ``freeze`` that matches no parameter.

    Notes
    -----
    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
    """

    def __init__(
        self,
        model: Model[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        no_decay: Sequence[str] = NO_DECAY,
        freeze: Sequence[str] = (),
    ) -> None:
        super().__init__(
            _native.Optimizer.adamw(
                _native_model(model),
                lr=_real("lr", lr),
                betas=_pair("betas", betas),
                eps=_real("eps", eps),
                weight_decay=_real("weight_decay", weight_decay),
                no_decay=_patterns("no_decay", no_decay),
                freeze=_patterns("freeze", freeze),
            )
        )


class SGD(Optimizer):
    """Stochastic gradient descent, step by step as ``torch.optim.SGD`` computes it.

    Parameters
    ----------
    model
        Whose parameters are stepped.
    lr, momentum, nesterov, weight_decay
        Hyperparameters, torch's defaults.
    no_decay, freeze
        As for `AdamW`.

    Raises
    ------
    ConfigError
        As for `AdamW`.
    """

    def __init__(
        self,
        model: Model[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        no_decay: Sequence[str] = NO_DECAY,
        freeze: Sequence[str] = (),
    ) -> None:
        super().__init__(
            _native.Optimizer.sgd(
                _native_model(model),
                lr=_real("lr", lr),
                momentum=_real("momentum", momentum),
                nesterov=bool(nesterov),
                weight_decay=_real("weight_decay", weight_decay),
                no_decay=_patterns("no_decay", no_decay),
                freeze=_patterns("freeze", freeze),
            )
        )


def clip_grad_norm(grads: Gradients[Any], max_norm: float) -> float:
    """Scale all parameters' gradients in place so that their common norm is at most ``max_norm``.

    Returns
    -------
    float
        The norm before clipping, summed in float64. Where it is NaN or infinite, so are gradients.

    Notes
    -----
    As ``torch.nn.utils.clip_grad_norm_``.
    """
    return _native.clip_grad_norm(native_gradients("grads", grads), _real("max_norm", max_norm))


def _patterns(name: str, patterns: Sequence[str]) -> list[str]:
    listed = isinstance(patterns, (list, tuple)) and all(isinstance(pattern, str) for pattern in patterns)
    if not listed:
        raise ConfigError(f"{name} must be a list of patterns, got {patterns!r}")
    return list(patterns)


def _native_model(model: Any) -> _native.Model:
    if isinstance(model, Model):
        return model._native
    raise TypeError(f"model must be a Mamba2 or another model, got {type(model).__name__}")


def _pair(name: str, values: Sequence[float]) -> tuple[float, float]:
    try:
        first, second = values
        return float(first), float(second)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be a pair of numbers, got {values!r}") from None


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise StateDictError(f"{name} must be a number, got {value!r}; nothing was loaded") from None


def _step(value: Any) -> int:
    try:
        step = operator.index(value)
    except TypeError:
        step = -1
    if not 0 <= step < 2**63:
        raise StateDictError(f"step must be a count of steps, got {value!r}; nothing was loaded")
    return step


def _real(name: str, value: Any) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise ConfigError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be a number, got {value!r}") from None
