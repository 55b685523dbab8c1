"""Cases and runners with which less would be compared than it seems are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.cases import Case
from mamba2_bridge.parity.tolerances import DTYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mamba2_bridge.parity.cases import Batch, DType
    from mamba2_bridge.parity.runner import Runner
    from mamba2_bridge.parity.stages import Stage


def check_dtypes(dtypes: Iterable[DType]) -> tuple[DType, ...]:
    """Check names of element types, and give them.

    Raises
    ------
    ConfigError
        Other names, or none.
    """
    names = tuple(dtypes)
    if isinstance(dtypes, str) or not names or any(dtype not in DTYPES for dtype in names):
        raise ConfigError(f"dtypes must be some of {', '.join(DTYPES)}, got {dtypes!r}")
    return names


def check_case(case: Case) -> None:
    """Check what a case says by itself.

    Raises
    ------
    ConfigError
        Naming the case, and what of it would never be looked at.
    """
    if not isinstance(case, Case):
        raise ConfigError(f"a case must be a Case, got {type(case).__name__}")
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
        if case.optimizer is not None and not batch.starts_backward:
            raise ConfigError(
                f"{case.name}: batch {number} is for an optimizer step and has neither a target nor upstream "
                f"gradients"
            )
        if batch.target is not None and batch.upstream:
            raise ConfigError(
                f"{case.name}: batch {number} has both a target and upstream gradients to "
                f"{', '.join(batch.upstream)}: its backward starts from one"
            )


def check_start(case: Case, batch: Batch, runner: Runner, made: Collection[str]) -> None:
    """Check that a backward starts from something that was made.

    Parameters
    ----------
    case, batch
        What was computed.
    runner
        Who did.
    made
        Names of what its forward gave.

    Raises
    ------
    ConfigError
        Upstream gradients to what is no output, or all of them zero.
    """
    if strange := [name for name in made if name.startswith(("grad.", "param."))]:
        raise ConfigError(
            f"{runner.name}: names of a forward can't start with grad. or param., got {strange}"
        )
    between = set(runner.intermediates)
    outputs = [name for name in made if name not in between]
    if strange := [name for name in batch.upstream if name not in outputs]:
        raise ConfigError(
            f"{case.name}: upstream gradients must be to outputs ({', '.join(outputs)}), "
            f"got {', '.join(strange)}"
        )
    sizes = [array.size for array in batch.upstream.values()]
    if any(sizes) and not any(array.any() for array in batch.upstream.values()):
        raise ConfigError(
            f"{case.name}: all upstream gradients are zero, and so is every gradient, right or not"
        )


def check_gradients(case: Case, runner: Runner, gradients: Collection[str]) -> None:
    """Check that gradients that were given came from somewhere.

    Raises
    ------
    ConfigError
        A batch with neither target nor upstream gradients: all gradients are zero then, right or not.
    """
    if gradients and not case.batch.starts_backward:
        raise ConfigError(
            f"{case.name}: {runner.name} gives gradients, but the batch has neither a target nor upstream "
            f"gradients for them to come from"
        )


def check_stages(runner: Runner, stages: Sequence[Stage], made: Collection[str]) -> None:
    """Check that stages, where there are some, account for everything.

    Raises
    ------
    ConfigError
        Tensors that none of them makes.
    """
    known = {name for stage in stages for name in stage.makes}
    if stages and (unmade := [name for name in made if name not in known and name != "loss"]):
        raise ConfigError(
            f"{runner.name}: no stage makes {', '.join(unmade)}; stages make {', '.join(sorted(known))}"
        )
