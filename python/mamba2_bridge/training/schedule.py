"""Learning-rate schedules: the rate of each step, as a pure function of the step's number."""

from __future__ import annotations

import math
from typing import Literal

ScheduleName = Literal["constant", "cosine"]


def learning_rate(
    step: int, *, schedule: ScheduleName, lr: float, steps: int, warmup: int = 0, final: float = 0.0
) -> float:
    """Return the learning rate of a step.

    Both schedules rise linearly over the first `warmup` steps, to `lr` at the last of them. ``"constant"``
    stays there;
    ``"cosine"`` falls along half a cosine from `lr`, and would be at ``final * lr`` one step after the last.

    Parameters
    ----------
    step : int
        Number of the step, from 0 to ``steps - 1``.
    schedule : {"constant", "cosine"}
    lr : float
        The highest rate.
    steps : int
        Number of steps of the whole training.
    warmup : int
        Number of steps of the rise.
    final : float
        The last rate as a fraction of `lr`.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    if schedule == "constant":
        return lr
    progress = (step + 1 - warmup) / (steps + 1 - warmup)
    return lr * (final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress)))
