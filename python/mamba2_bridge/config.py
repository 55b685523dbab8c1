"""Configurations: frozen, checked on construction, with state-spaces' names and defaults."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from mamba2_bridge import _native
from mamba2_bridge.exceptions import ConfigError

_C = TypeVar("_C", bound="_Config")


class _Config:
    """What all configurations share: a dict and back."""

    def to_dict(self) -> dict[str, Any]:
        """Give all fields by name, as plain Python values; configurations inside become dicts, too."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls: type[_C], values: Mapping[str, Any]) -> _C:
        """Make a configuration from `to_dict`'s result; absent fields take their defaults.

        Raises
        ------
        ConfigError
            No mapping, a field that there isn't, one without a default that is absent, or a wrong value.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(f"{cls.__name__} is made from a mapping, got {type(values).__name__}")
        fields: dict[str, dataclasses.Field[Any]] = {
            field.name: field
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        }
        unknown = [name for name in values if name not in fields]
        if unknown:
            raise ConfigError(f"{cls.__name__} has no field {', '.join(map(repr, unknown))}")
        needed = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in values]
        if needed:
            raise ConfigError(f"{cls.__name__} needs {', '.join(needed)}")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Mamba2Config(_Config):
    """Configuration of one Mamba-2 mixer.

    Parameters
    ----------
    d_model
        Width of input and output.
    d_state
        State size N of each channel.
    d_conv
        Taps of the causal convolution.
    expand
        ``d_inner = expand * d_model``.
    headdim
        Channels P of one head; divides ``d_ssm``.
    d_ssm
        Channels that go through the state space model, the rest of ``d_inner`` being a gated MLP. None: all.
    ngroups
        Groups of neighbouring heads that share B and C; divides the number of heads.
    norm_groups
        Groups of channels that the gated norm normalises apart; divides ``d_ssm``. None: ``ngroups``.
    A_init_range
        Range from which -A is drawn.
    conv_init
        Convolution weights start in ±``conv_init``. None: PyTorch's default, ±1/√``d_conv``.
    D_has_hdim
        D for each channel rather than for each head.
    rmsnorm
        A gated RMS norm before the output projection. False: the gate alone.
    norm_before_gate
        Normalise before the gate rather than after it.
    dt_min, dt_max, dt_init_floor
        The initial step Δ is log-uniform from ``dt_min`` to ``dt_max``, at least ``dt_init_floor``.
    dt_limit
        Bounds that Δ is clamped to, in forward and in step.
    bias, conv_bias
        Biases in both projections; a bias in the convolution.
    norm_eps
        Epsilon inside the norm's root.
    chunk_size
        Tokens of one block of the scan: steers speed and memory, never the result.

    Raises
    ------
    ConfigError
        Names the field, the value and the rule.

    Notes
    -----
    Names and defaults are those of state-spaces' ``Mamba2``, to which ``norm_groups`` and ``norm_eps`` are
    added.
    """

    d_model: int
    d_state: int = 128
    d_conv: int = 4
    expand: int = 2
    headdim: int = 64
    d_ssm: int | None = None
    ngroups: int = 1
    norm_groups: int | None = None
    A_init_range: tuple[float, float] = (1, 16)
    conv_init: float | None = None
    D_has_hdim: bool = False
    rmsnorm: bool = True
    norm_before_gate: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_init_floor: float = 1e-4
    dt_limit: tuple[float, float] = (0.0, math.inf)
    bias: bool = False
    conv_bias: bool = True
    norm_eps: float = 1e-5
    chunk_size: int = 256

    def __post_init__(self) -> None:
        """Check types here and values in the core, which knows the rules."""
        for name in ("d_model", "d_state", "d_conv", "expand", "headdim", "ngroups", "chunk_size"):
            _normalise(self, name, _count)
        for name in ("d_ssm", "norm_groups"):
            _normalise(self, name, _optional(_count))
        for name in ("dt_min", "dt_max", "dt_init_floor", "norm_eps"):
            _normalise(self, name, _real)
        _normalise(self, "conv_init", _optional(_real))
        for name in ("A_init_range", "dt_limit"):
            _normalise(self, name, _pair)
        for name in ("D_has_hdim", "rmsnorm", "norm_before_gate", "bias", "conv_bias"):
            _normalise(self, name, _flag)
        self._native()

    def _native(self) -> _native.MixerConfig:
        return _native.MixerConfig(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    @property
    def d_inner(self) -> int:
        """Width between the projections, ``expand * d_model``."""
        return self._native().d_inner

    @property
    def nheads(self) -> int:
        """Number of heads, ``d_ssm / headdim``."""
        return self._native().nheads

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution, ``d_ssm + 2 * ngroups * d_state``."""
        return self._native().conv_dim


@dataclasses.dataclass(frozen=True)
class Mamba2ForecasterConfig(_Config):
    """Configuration of a forecaster: sequence in, prediction from the last timestep out.

    Parameters
    ----------
    mixer
        The mixer of every layer, or its fields as a dict.
    n_layer
        Residual blocks.
    d_input
        Width of the input.
    d_output
        Width of the prediction.

    Raises
    ------
    ConfigError
        Names the field, the value and the rule.
    """

    mixer: Mamba2Config
    n_layer: int
    d_input: int
    d_output: int

    def __post_init__(self) -> None:
        """Check types here and values in the core, which knows the rules."""
        _normalise(self, "mixer", _mixer)
        for name in ("n_layer", "d_input", "d_output"):
            _normalise(self, name, _count)
        self._native()

    def _native(self) -> _native.ForecasterConfig:
        return _native.ForecasterConfig(
            mixer=self.mixer._native(), n_layer=self.n_layer, d_input=self.d_input, d_output=self.d_output
        )


def _normalise(config: _Config, name: str, convert: Any) -> None:
    """Replace a field by its plain Python value, or say what it must be."""
    value = getattr(config, name)
    try:
        object.__setattr__(config, name, convert(value))
    except _WrongTypeError as error:
        raise ConfigError(f"{name} must be {error}, got {value!r}") from None


class _WrongTypeError(Exception):
    """A value of another kind; the message says of which it must be."""


def _count(value: Any) -> int:
    rule = "an integer of at least 1"
    if isinstance(value, bool):
        raise _WrongTypeError(rule)
    try:
        count = operator.index(value)
    except TypeError:
        raise _WrongTypeError(rule) from None
    if count < 0:
        raise _WrongTypeError(rule)
    if count >= 2**63:
        raise _WrongTypeError("an integer below 2**63")
    return count


def _real(value: Any) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise _WrongTypeError("a number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _WrongTypeError("a number") from None


def _pair(value: Any) -> tuple[float, float]:
    rule = "a pair of numbers (low, high)"
    try:
        low, high = value
    except (TypeError, ValueError):
        raise _WrongTypeError(rule) from None
    try:
        return _real(low), _real(high)
    except _WrongTypeError:
        raise _WrongTypeError(rule) from None


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _WrongTypeError("True or False")


def _mixer(value: Any) -> Mamba2Config:
    if isinstance(value, Mapping):
        return Mamba2Config.from_dict(value)
    if isinstance(value, Mamba2Config):
        return value
    raise _WrongTypeError("a Mamba2Config")


def _optional(convert: Any) -> Any:
    def converted(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except _WrongTypeError as error:
            raise _WrongTypeError(f"None or {error}") from None

    return converted
