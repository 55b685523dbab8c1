"""The learning rate of each step, by hand."""

from __future__ import annotations

import math

from assertions import assert_value
from mamba2_bridge.training.schedule import learning_rate


def rates(steps: int, **how) -> list[float]:
    return [learning_rate(step, steps=steps, lr=1.0, **how) for step in range(steps)]


def test_warm_up_rises_evenly_to_the_highest_rate():
    assert rates(6, schedule="constant", warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_constant_is_constant():
    assert rates(3, schedule="constant") == [1, 1, 1]


def test_cosine_falls_towards_the_last_rate_so_that_no_step_is_in_vain():
    # a quarter, half and three quarters of the way: cos(45°), cos(90°), cos(135°)
    assert_value(
        "rates",
        rates(4, schedule="cosine", warmup=1, final=0.2),
        [1, 0.2 + 0.8 * 0.8535533905932737, 0.6, 0.2 + 0.8 * 0.14644660940672624],
    )
    assert min(rates(1000, schedule="cosine")) > 0


def test_cosine_without_warm_up_never_rises_and_would_reach_zero_one_step_after_the_last():
    falling = rates(50, schedule="cosine")
    assert falling == sorted(falling, reverse=True)
    assert_value("rates", falling, [math.cos(math.pi / 2 * step / 51) ** 2 for step in range(1, 51)])


def test_warm_up_longer_than_the_training_only_rises():
    assert rates(2, schedule="cosine", warmup=4) == [0.25, 0.5]
