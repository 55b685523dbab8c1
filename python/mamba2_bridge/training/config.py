"""What a training run is made of, checked when it is written down."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.training.scaling import Normalise
from mamba2_bridge.training.schedule import ScheduleName
from mamba2_bridge.training.table import Missing

if TYPE_CHECKING:
    from collections.abc import Callable

Dtype = Literal["float32", "float64"]

_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "validation": ("between 0 and 1", lambda x: 0 < x < 1),
    "test": ("between 0 and 1", lambda x: 0 < x < 1),
    "lr": ("above 0", lambda x: x > 0),
    "final_lr": ("from 0 to 1", lambda x: 0 <= x <= 1),
    "weight_decay": ("of 0 or more", lambda x: x >= 0),
    "clip": ("of 0 or more", lambda x: x >= 0),
    "average": ("from 0 to below 1", lambda x: 0 <= x < 1),
}


@dataclass(frozen=True)
class TrainConfig:
    """A training run: the data's columns, the model's sizes, the optimizer's numbers.

    Attributes
    ----------
    target : str
        Column to predict; its past is always an input.
    features : tuple of str
        Further input columns.
    time : str or None
        Column of dates or numbers by which rows are ordered; None: rows are in order.
    window, horizon : int
        Rows the model sees; how many rows after the last of them the target lies.
    normalise : {"window", "train"}
        See :mod:`mamba2_bridge.training.scaling`: per window for series with a trend, else by the training
        part.
    missing : {"error", "interpolate"}
        What to do with missing cells.
    period : int or None
        Rows of a season, for the seasonal naive baseline.
    calendar : int or None
        Harmonics of the time of year as inputs; None: see
        :func:`~mamba2_bridge.training.calendar.automatic_harmonics`.
    validation, test : float
        Shares of the rows, at the end of the series.
    d_model, n_layer, d_state, headdim, expand, d_conv, chunk_size : int
        The model's sizes (:class:`mamba2_bridge.Mamba2Config`).
    steps, batch_size : int
        Optimizer steps at most; examples in each.
    lr, warmup, final_lr, schedule
        The highest rate, steps of the rise, the last rate as a fraction, and the form of the fall
        (:func:`~mamba2_bridge.training.schedule.learning_rate`).
    weight_decay, clip : float
        AdamW's decay; the largest norm of a step's gradient (0: not clipped).
    average : float
        Decay of the running average of the weights, which is what is validated and kept as the best (0:
        the weights themselves).
    evaluate_every, patience : int
        Steps between validations; validations without a new best before training stops (0: it does not
        stop early).
    seed : int
        Of the first weights and of the order of examples.
    dtype, device : str
        Of the model.
    """

    target: str
    features: tuple[str, ...] = ()
    time: str | None = None
    window: int = 64
    horizon: int = 1
    normalise: Normalise = "window"
    missing: Missing = "error"
    period: int | None = None
    calendar: int | None = None
    validation: float = 0.15
    test: float = 0.15
    d_model: int = 16
    n_layer: int = 2
    d_state: int = 16
    headdim: int = 8
    expand: int = 2
    d_conv: int = 4
    chunk_size: int = 16
    steps: int = 700
    batch_size: int = 32
    lr: float = 3e-3
    warmup: int = 50
    final_lr: float = 0.0
    schedule: ScheduleName = "cosine"
    weight_decay: float = 1.0
    clip: float = 1.0
    average: float = 0.99
    evaluate_every: int = 25
    patience: int = 12
    seed: int = 0
    dtype: Dtype = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check every field.

        Raises
        ------
        ConfigError
            Naming the field, its value and the rule.
        """
        if isinstance(self.features, str):
            raise ConfigError(
                f"features must be a sequence of column names, got the string {self.features!r}"
            )
        object.__setattr__(self, "features", tuple(self.features))
        whole = [
            "window",
            "horizon",
            "d_model",
            "n_layer",
            "d_state",
            "headdim",
            "expand",
            "d_conv",
            "chunk_size",
        ]
        for name in [*whole, "steps", "batch_size", "evaluate_every"]:
            self._check_whole(name, 1)
        for name in ("warmup", "patience", "seed"):
            self._check_whole(name, 0)
        if self.window < 2:
            raise ConfigError(f"window must be 2 or more, got {self.window}")
        for name in ("period", "calendar"):
            if getattr(self, name) is not None:
                self._check_whole(name, 1 if name == "period" else 0)
        for name, (rule, holds) in _NUMBERS.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not holds(value):
                raise ConfigError(f"{name} must be a number {rule}, got {value!r}")
        if self.validation + self.test >= 1:
            raise ConfigError(
                "validation + test must be below 1 to leave rows for training,"
                f" got {self.validation} + {self.test}"
            )
        for name, kind in (
            ("normalise", Normalise),
            ("missing", Missing),
            ("schedule", ScheduleName),
            ("dtype", Dtype),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = " or ".join(map(repr, get_args(kind)))
                raise ConfigError(f"{name} must be {choices}, got {getattr(self, name)!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "features": list(self.features)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Return the config that :meth:`to_dict` wrote.

        Raises
        ------
        ConfigError
            If a field is unknown or missing, or wrong.
        """
        names = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - names):
            raise ConfigError(
                f"unknown fields {', '.join(unknown)}; a TrainConfig has {', '.join(sorted(names))}"
            )
        if "target" not in values:
            raise ConfigError("a TrainConfig needs a target")
        return cls(**{**values, "features": tuple(values.get("features", ()))})

    def with_calendar(self, calendar: int) -> TrainConfig:
        """Return this config with the number of harmonics settled."""
        return replace(self, calendar=calendar)

    def _check_whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{name} must be a whole number, {least} or more, got {value!r}")
