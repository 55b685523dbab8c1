"""What is remembered of a training: the loss of every step, and at every validation a closer look."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Evaluation:
    """One validation, and the step before it parameter by parameter.

    Attributes
    ----------
    step : int
        Number of steps made.
    learning_rate : float
        Of the last step.
    train_loss : float
        Mean over the steps since the validation before.
    validation_loss : float
    gradient_norm : float
        Of the last step, all parameters together, before clipping.
    gradient_norms : dict
        The same by parameter.
    update_ratios : dict
        Norm of the last step's change of a parameter, divided by the parameter's norm.
    """

    step: int
    learning_rate: float
    train_loss: float
    validation_loss: float
    gradient_norm: float
    gradient_norms: dict[str, float]
    update_ratios: dict[str, float]


@dataclass
class Record:
    """The history of a run; part of its checkpoint.

    Attributes
    ----------
    losses : list of float
        Training loss of each step.
    evaluations : list of Evaluation
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {"losses": self.losses, "evaluations": [asdict(one) for one in self.evaluations]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """Return the record that :meth:`to_dict` wrote.

        Raises
        ------
        KeyError, TypeError
            If it is not one.
        """
        losses, evaluations = values["losses"], [Evaluation(**one) for one in values["evaluations"]]
        numbers = [*losses]
        for one in evaluations:
            numbers += [one.step, one.learning_rate, one.train_loss, one.validation_loss, one.gradient_norm]
            numbers += [*one.gradient_norms.values(), *one.update_ratios.values()]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TypeError(f"the record holds {number!r} in place of a number")
        return cls(list(losses), evaluations)


def update_ratios(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return ‖after − before‖ / ‖after‖ by parameter; 0 where a parameter is all zero and stayed so."""
    ratios = {}
    for name, new in after.items():
        with np.errstate(over="ignore", invalid="ignore"):  # then the ratio is not finite
            change = float(np.linalg.norm((new - before[name]).astype(np.float64)))
            size = float(np.linalg.norm(new.astype(np.float64)))
        ratios[name] = change / max(size, 1e-30) if change else 0.0
    return ratios
