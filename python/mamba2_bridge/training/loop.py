"""The trainer: minibatches in, better weights out, interruptible between any two steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mamba2_bridge import optim
from mamba2_bridge.exceptions import NonFiniteError
from mamba2_bridge.training.interrupt import Interrupt
from mamba2_bridge.training.record import Evaluation, Record, update_ratios
from mamba2_bridge.training.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from mamba2_bridge.model import Mamba2Forecaster
    from mamba2_bridge.training.config import TrainConfig
    from mamba2_bridge.training.examples import Examples
    from mamba2_bridge.training.windows import Rows

Weights = dict[str, NDArray[Any]]

# examples of one forward pass without gradients: bounds the memory, changes no result
_INFERENCE_BATCH = 256


@dataclass(frozen=True)
class StepReport:
    """What a caller is told after each step; validation losses are None before the first validation."""

    step: int
    steps: int
    loss: float
    validation_loss: float | None
    best_loss: float | None


@dataclass
class Progress:
    """Where a training stands, apart from weights, moments and the generator.

    Attributes
    ----------
    step : int
        Steps made.
    best_loss, best_step
        The least validation loss and the step it was reached at; None before the first validation.
    without_best : int
        Validations since then.
    rest : ndarray
        (n,) examples of this pass over the data that are still to come, in order.
    record : Record
    """

    step: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    without_best: int = 0
    rest: Rows = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    record: Record = field(default_factory=Record)


class Trainer:
    """Trains a forecaster in place.

    All that the next step depends on is in `model`, `optimizer`, `average`, `order` and `progress`.

    Parameters
    ----------
    model : Mamba2Forecaster
    averaged : Mamba2Forecaster
        A second one of the same shape; it gets the averaged weights at each validation.
    examples : Examples
    train, validation : ndarray
        (n,) rows at which windows end.
    config : TrainConfig
    """

    def __init__(
        self,
        *,
        model: Mamba2Forecaster,
        averaged: Mamba2Forecaster,
        examples: Examples,
        train: Rows,
        validation: Rows,
        config: TrainConfig,
    ) -> None:
        self.model = model
        self.averaged = averaged
        self.examples = examples
        self.train = train
        self.validation = validation
        self.config = config
        self.optimizer = optim.AdamW(model, lr=config.lr, weight_decay=config.weight_decay)
        self.average: Weights = dict(model.state_dict())
        self.order = np.random.default_rng(config.seed)
        self.progress = Progress()

    @property
    def finished(self) -> bool:
        """Whether all steps are made, or validation has not improved for `patience` times."""
        patience, progress = self.config.patience, self.progress
        return progress.step >= self.config.steps or 0 < patience <= progress.without_best

    def run(
        self,
        *,
        save_best: Callable[[], None],
        save_last: Callable[[], None],
        on_step: Callable[[StepReport], None] | None = None,
    ) -> None:
        """Train until finished.

        Parameters
        ----------
        save_best : callable
            Called when `averaged` holds the best weights so far.
        save_last : callable
            Called after each validation, and before an interrupt leaves.
        on_step : callable, optional
            Called after each step; it may raise KeyboardInterrupt.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, once the step is made and saved.
        NonFiniteError
            If a loss, a gradient or a weight is no longer finite; nothing is saved then.
        """
        with Interrupt() as interrupt:
            while not self.finished:
                if self._step():
                    if self.progress.without_best == 0:
                        save_best()
                    save_last()
                try:
                    if on_step is not None:
                        on_step(self._report())
                    interrupt.check()
                except KeyboardInterrupt:
                    save_last()
                    raise

    def _step(self) -> bool:
        """Make one optimizer step; return whether it ended with a validation."""
        config, progress = self.config, self.progress
        evaluates = (progress.step + 1) % config.evaluate_every == 0 or progress.step + 1 == config.steps
        ends = self._next_batch()
        loss = self.model.forward(self.examples.inputs(ends)).mse_loss(self.examples.targets(ends))
        value = loss.item()
        self._check_finite("the training loss", value)
        grads = loss.backward()
        norms = grads.norms() if evaluates else {}
        before = self.model.state_dict() if evaluates else {}
        if config.clip > 0:
            self._check_finite("the gradient's norm", optim.clip_grad_norm(grads, config.clip))
        self.optimizer.lr = learning_rate(
            progress.step,
            schedule=config.schedule,
            lr=config.lr,
            steps=config.steps,
            warmup=config.warmup,
            final=config.final_lr,
        )
        self.optimizer.step(grads)
        progress.step += 1
        progress.record.losses.append(value)
        weights = self.model.state_dict()
        self._move_average(weights)
        if evaluates:
            self._evaluate(norms, update_ratios(before, weights))
        return evaluates

    def _check_finite(self, what: str, value: float, step: int | None = None) -> None:
        if not math.isfinite(value):
            raise NonFiniteError(
                f"{what} is {value} at step {step or self.progress.step + 1};"
                f" a smaller lr than {self.config.lr} may help"
            )

    def _next_batch(self) -> Rows:
        """Return the next examples of a pass in random order; the last batch of a pass may be smaller."""
        progress = self.progress
        if not len(progress.rest):
            progress.rest = self.order.permutation(self.train)
        size = self.config.batch_size
        ends, progress.rest = progress.rest[:size], progress.rest[size:]
        return ends

    def _move_average(self, weights: Weights) -> None:
        """Move the running average towards the weights, by more in the first steps: these are forgotten."""
        step = self.progress.step
        towards = max(1.0 - self.config.average, 9.0 / (step + 8))
        self.average = {
            name: mean + (weights[name] - mean) * mean.dtype.type(towards)
            for name, mean in self.average.items()
        }

    def _evaluate(self, norms: dict[str, float], ratios: dict[str, float]) -> None:
        """Validate the averaged weights, and note everything about the step just made."""
        progress, record = self.progress, self.progress.record
        # all that is recorded must be finite: JSON holds no NaN
        norm = math.hypot(*norms.values())
        self._check_finite("the gradient's norm", norm, progress.step)
        for name, ratio in ratios.items():
            self._check_finite(f"the update of {name}", ratio, progress.step)
        self.averaged.load_state_dict(self.average)
        loss = self._validation_loss()
        self._check_finite("the validation loss", loss, progress.step)
        since = record.evaluations[-1].step if record.evaluations else 0
        record.evaluations.append(
            Evaluation(
                step=progress.step,
                learning_rate=self.optimizer.lr,
                train_loss=float(np.mean(record.losses[since:])),
                validation_loss=loss,
                gradient_norm=norm,
                gradient_norms=dict(norms),
                update_ratios=ratios,
            )
        )
        if progress.best_loss is None or loss < progress.best_loss:
            progress.best_loss, progress.best_step, progress.without_best = loss, progress.step, 0
        else:
            progress.without_best += 1

    def _validation_loss(self) -> float:
        """Return the training loss, the mean square at the last timestep, on the validation examples."""
        error = answers(self.averaged, self.examples, self.validation) - self.examples.targets(
            self.validation
        )
        with np.errstate(over="ignore"):
            return float(np.mean(error.astype(np.float64) ** 2))

    def _report(self) -> StepReport:
        record = self.progress.record
        return StepReport(
            step=self.progress.step,
            steps=self.config.steps,
            loss=record.losses[-1],
            validation_loss=record.evaluations[-1].validation_loss if record.evaluations else None,
            best_loss=self.progress.best_loss,
        )


def answers(model: Mamba2Forecaster, examples: Examples, ends: Rows) -> NDArray[Any]:
    """Return the model's answers (n, 1) to windows that end at `ends`, without gradients."""
    parts = range(0, len(ends), _INFERENCE_BATCH)
    return np.concatenate([model(examples.inputs(ends[at : at + _INFERENCE_BATCH])) for at in parts])
