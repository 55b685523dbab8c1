"""An audit of a model: faults that raise no error, looked for by the crate candle-audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mamba2_bridge import _native
from mamba2_bridge.exceptions import AuditError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from mamba2_bridge.model import Model


@dataclass(frozen=True)
class Finding:
    """A fault.

    Attributes
    ----------
    check
        Which check found it.
    name
        The parameter; None where it is none's alone.
    fault
        What is wrong.
    place
        Where, or by how much.
    """

    check: str
    name: str | None
    fault: str
    place: str

    def __str__(self) -> str:
        return f"{self.check}: {self.fault}: {self.place}" if self.place else f"{self.check}: {self.fault}"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes
    ----------
    looked_at
        For each check, how many parameters it looked at.
    findings
        The faults; none where the model is sound.
    """

    looked_at: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def raise_for_findings(self) -> None:
        """Do nothing if nothing is wrong.

        Raises
        ------
        AuditError
            Naming all that is.
        """
        if self.findings:
            raise AuditError(str(self))

    def __str__(self) -> str:
        """Give a line for each check, and one for each fault."""
        lines = []
        for check, count in self.looked_at.items():
            found = [finding for finding in self.findings if finding.check == check]
            verdict = "pass" if not found else f"{len(found)} found"
            lines.append(f"{check:15} {count:4} looked at  {verdict}")
            lines += [f"  {finding.fault}: {finding.place}".rstrip(": ") for finding in found]
        return "\n".join(lines)


def audit(
    model: Model[Any],
    batch: ArrayLike | tuple[ArrayLike, ArrayLike],
    *,
    directions: int = 2,
    seed: int = 0,
    allowing_zero: Sequence[str] = (),
) -> AuditReport:
    """Look for faults that raise no error: the model itself stays as it is.

    A copy in float64 is audited: whether the loss reaches every parameter in float64 all the way and each
    gets a gradient that is finite and not zero; whether gradients agree with finite differences, a change of
    1e-12 of a parameter shows in the loss, and a changed parameter changes the output; whether an optimizer
    step moves every parameter.

    Parameters
    ----------
    model
        Any of this package's.
    batch
        Input of a forward pass, or input and target; noise where there is no target. The checks take some
        dozens of passes for each parameter: keep it small.
    directions
        In which gradients are compared with differences, for each parameter.
    seed
        Of the directions, and of the target where there is none.
    allowing_zero
        Names or patterns (``*``) of parameters that may be zero, have a gradient of zero or no influence on
        this batch.

    Returns
    -------
    AuditReport
        Of all checks; where a parameter or the output isn't finite, of that alone.

    Raises
    ------
    ShapeError, DTypeError
        A batch that doesn't fit the model.
    ConfigError
        An empty batch, a tuple of other than two, a target that isn't finite, or ``directions`` below 1.
    StateDictError
        A name in ``allowing_zero`` that fits no parameter.
    """
    if isinstance(batch, tuple) and len(batch) != 2:
        raise ConfigError(f"batch must be an input, or input and target, got a tuple of {len(batch)}")
    x, target = batch if isinstance(batch, tuple) else (batch, None)
    if isinstance(directions, bool) or not isinstance(directions, int) or directions < 1:
        raise ConfigError(f"directions must be at least 1, got {directions!r}")
    x, run = np.asarray(x), cast("Any", model)
    expected = run(x)  # refuses what doesn't fit
    if expected.size == 0 or x.size == 0:
        raise ConfigError(f"an audit needs a batch with elements, got shape {x.shape}")
    if target is None:
        wanted = np.random.default_rng(seed).standard_normal(expected.shape)
    else:
        wanted = np.asarray(target)
        run.forward(x).mse_loss(wanted)  # refuses what doesn't fit
        if not np.isfinite(wanted).all():
            raise ConfigError("the target holds NaN or infinity: no loss, and no gradient, is right then")
    params = {name: value.astype(np.float64) for name, value in model.varmap.items()}
    found_infinite = _non_finite(params, expected)
    if found_infinite:
        return AuditReport({_FINITE: len(params)}, tuple(found_infinite))
    copy = type(model)(model.config, dtype="float64", device=model.device, kernels=model._kernels)
    copy.load_state_dict(params)
    found = _native.audit(
        copy._native,
        x.astype(np.float64),
        wanted.astype(np.float64),
        name="batch",
        directions=directions,
        seed=seed,
        allowing_zero=list(allowing_zero),
    )
    findings = (Finding(check, *fault) for check, _, faults in found for fault in faults)
    return AuditReport({check: count for check, count, _ in found}, tuple(findings))


_FINITE = "finite values"


def _non_finite(params: dict[str, NDArray[Any]], output: NDArray[Any]) -> list[Finding]:
    """Name what isn't finite: no other check could tell anything then."""
    findings = []
    for name, value in params.items():
        count = int((~np.isfinite(value)).sum())
        if count > 0:
            findings.append(
                Finding(_FINITE, name, "NaN or infinite", f"{name}: {count} of {value.size} elements")
            )
    if not findings and not np.isfinite(output).all():
        findings.append(Finding(_FINITE, None, "NaN or infinite", "the output"))
    return findings
