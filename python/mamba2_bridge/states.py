"""Checks of the states that callers pass."""

from __future__ import annotations

from typing import Any

from mamba2_bridge._native import Mamba2State


def one_state(name: str, value: Any) -> Mamba2State:
    """Give ``value`` back if it is a state.

    Raises
    ------
    TypeError
        It is something else.
    """
    if isinstance(value, Mamba2State):
        return value
    raise TypeError(f"{name} must be a Mamba2State, got {type(value).__name__}")


def state_list(name: str, values: Any) -> list[Mamba2State]:
    """Give ``values`` as a list if all of them are states."""
    if isinstance(values, Mamba2State) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a list of Mamba2State, one a layer, got {type(values).__name__}")
    return [one_state(f"{name}[{layer}]", value) for layer, value in enumerate(values)]
