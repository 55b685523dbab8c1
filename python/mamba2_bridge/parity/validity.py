"""Cases that would compare less than they seem to are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.runner import Runner


def check_case(case: Case) -> None:
    """Check what a case says by itself.

    Raises
    ------
    ConfigError
        Naming the case, and what of it would never be looked at.
    """
    if not case.batches:
        raise ConfigError(f"{case.name}: a case needs at least one batch, got none")
    if len(case.batches) > 1 and case.optimizer is None:
        raise ConfigError(
            f"{case.name}: batches after the first are for optimizer steps: got {len(case.batches)} and no "
            f"optimizer; give an optimizer, or make a case of each"
        )
    if case.by_token and case.optimizer is not None:
        raise ConfigError(f"{case.name}: by token there are no gradients for an optimizer to take")
    for number, batch in enumerate(case.batches):
        if batch.target is not None and batch.upstream:
            raise ConfigError(
                f"{case.name}: batch {number} has both a target and upstream gradients to "
                f"{', '.join(batch.upstream)}: its backward starts from one"
            )


def check_start(case: Case, runner: Runner, made: Collection[str]) -> None:
    """Check that a backward would start from something that was made.

    Parameters
    ----------
    case
        What was computed.
    runner
        Who did.
    made
        Names of what its forward gave.

    Raises
    ------
    ConfigError
        Upstream gradients to what is no output.
    """
    outputs = [name for name in made if name not in set(runner.intermediates)]
    if strange := [name for name in case.batch.upstream if name not in outputs]:
        raise ConfigError(
            f"{case.name}: upstream gradients must be to outputs ({', '.join(outputs)}), "
            f"got {', '.join(strange)}"
        )


def check_gradients(case: Case, runner: Runner, gradients: Collection[str]) -> None:
    """Check that gradients that were given came from somewhere.

    Raises
    ------
    ConfigError
        A batch with neither target nor upstream gradients: all gradients are zero then, right or not.
    """
    if gradients and case.batch.target is None and not case.batch.upstream:
        raise ConfigError(
            f"{case.name}: {runner.name} gives gradients, but the batch has neither a target nor upstream "
            f"gradients for them to come from"
        )
