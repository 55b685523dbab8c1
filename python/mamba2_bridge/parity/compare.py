"""What equal means: one result a tensor, and every way of not being there is a failure.

A candidate, in either dtype, is always held against the reference in fp64. The reference in fp32 only says
how far off a tensor may be (see `tolerances`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.parity.tolerances import quantity_of, relative_error, tolerance, worst_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.runners import Problem, Results, Runner
    from mamba2_bridge.parity.tolerances import DType, Quantity


@dataclass(frozen=True)
class TensorResult:
    """How one tensor of one case compares.

    Attributes
    ----------
    case, tensor, quantity, dtype
        What was compared.
    bound
        The largest `error` that is a pass.
    own_loss
        Error of the reference itself in fp32.
    error
        max|got - want| / max|want|; infinite where there is a `problem`.
    max_abs
        max|got - want|; infinite where there is a `problem`.
    index, got, want
        The element that differs most.
    problem
        Why the tensor could not be compared; None where it was.
    """

    case: str
    tensor: str
    quantity: Quantity
    dtype: DType
    bound: float
    own_loss: float = 0.0
    error: float = math.inf
    max_abs: float = math.inf
    index: tuple[int, ...] = ()
    got: float | None = None
    want: float | None = None
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the error is within the bound."""
        return self.problem is None and self.error <= self.bound

    @property
    def badness(self) -> float:
        """The error as a multiple of what is allowed."""
        if self.problem is not None:
            return math.inf
        return self.error / self.bound

    def __str__(self) -> str:
        where = f"{self.case} in {self.dtype}: {self.tensor}"
        if self.problem is not None:
            return f"{where}: {self.problem}"
        index = list(self.index) if self.index else ""
        return (
            f"{where}{index}: got {self.got!r}, want {self.want!r}; "
            f"relative error {self.error:.3g}, {self.bound:.3g} allowed"
        )


def compare_tensors(
    case: str,
    got: Mapping[str, NDArray[Any]],
    want: Mapping[str, NDArray[Any]],
    dtype: DType,
    own_loss: Mapping[str, float] | None = None,
    quantity: Quantity | None = None,
) -> list[TensorResult]:
    """Compare tensors by name: those of ``want`` in its order, then those that ``got`` has beyond them.

    Parameters
    ----------
    case
        What the results belong to.
    got, want
        The candidate's tensors, which must be of ``dtype``, and the reference's.
    own_loss
        Error of the reference itself in fp32, by tensor; absent: 0.
    quantity
        The row of the table of tolerances; None: by the tensor's name.
    """
    results = []
    for name in [*want, *(name for name in got if name not in want)]:
        of = quantity or quantity_of(name)
        loss = (own_loss or {}).get(name, 0.0)
        blank = TensorResult(case, name, of, dtype, tolerance(of, dtype).bound(loss), loss)
        results.append(_compared(blank, got.get(name), want.get(name)))
    return results


def own_losses(single: Mapping[str, NDArray[Any]], double: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Tell what the reference loses in fp32: its relative error by tensor, 0 where that is not finite.

    0 is the strict choice: a reference that overflows in fp32 excuses nothing.
    """
    losses = {name: relative_error(single[name], double[name]) for name in double}
    return {name: loss if math.isfinite(loss) else 0.0 for name, loss in losses.items()}


def compare_case(
    candidate: Runner, reference: Runner, case: Case, dtypes: Sequence[DType] = ("float64", "float32")
) -> list[TensorResult]:
    """Run a case on both sides, over the whole sequence and step by step, and compare every tensor.

    An exception of the candidate is a failed result that carries its message; one of the reference is raised.
    """
    want = {**reference.run(case, "float64"), **reference.run_steps(case, "float64")}
    single = {**reference.run(case, "float32"), **reference.run_steps(case, "float32")}
    losses = own_losses(single, want)
    results = []
    for dtype in dtypes:
        try:
            got = {**candidate.run(case, dtype), **candidate.run_steps(case, dtype)}
        except Exception as error:  # whatever it is, it is a failure, and the other cases are worth running
            results.append(_raised(case.name, "value", dtype, error))
        else:
            results += compare_tensors(case.name, got, want, dtype, losses)
    return results


@dataclass(frozen=True)
class Trajectory:
    """Both sides of a training run: what was compared, and the losses."""

    problem: str
    results: list[TensorResult]
    losses: dict[str, list[float]]


def compare_training(
    candidate: Runner, reference: Runner, problem: Problem, quantity: Quantity
) -> Trajectory:
    """Train both sides in fp64 from the same start; compare the loss and every parameter at every step."""
    results: list[TensorResult] = []
    losses: dict[str, list[float]] = {candidate.name: [], reference.name: []}
    got_steps: Iterator[Any] = iter(candidate.train(problem, "float64"))
    for number, want in enumerate(reference.train(problem, "float64"), start=1):
        try:
            got = next(got_steps)
        except Exception as error:  # as in compare_case; StopIteration, too few steps, is one too
            results.append(_raised(problem.name, quantity, "float64", error, f"step {number}"))
            break
        losses[candidate.name].append(got.loss)
        losses[reference.name].append(want.loss)
        prefix = f"step {number}: "
        at_start = number == 1  # no optimizer step has been taken when the first loss is computed
        results += compare_tensors(
            problem.name,
            {f"{prefix}loss": np.asarray(got.loss)},
            {f"{prefix}loss": np.asarray(want.loss)},
            "float64",
            quantity="loss" if at_start else quantity,
        )
        results += compare_tensors(
            problem.name,
            _prefixed(prefix, got.params),
            _prefixed(prefix, want.params),
            "float64",
            quantity=quantity,
        )
    return Trajectory(problem.name, results, losses)


def _compared(blank: TensorResult, got: NDArray[Any] | None, want: NDArray[Any] | None) -> TensorResult:
    if got is None:
        return replace(blank, problem="missing")
    if want is None:
        return replace(blank, problem=f"unexpected, of shape {got.shape}")
    if got.dtype != np.dtype(blank.dtype):
        return replace(blank, problem=f"dtype {got.dtype}, must be {blank.dtype}")
    if got.shape != want.shape:
        return replace(blank, problem=f"shape {got.shape}, must be {want.shape}")
    if want.size == 0:
        return replace(blank, error=0.0, max_abs=0.0)
    index = worst_index(got, want)
    at = (float(got[index]), float(want[index]))
    max_abs = abs(at[0] - at[1])
    return replace(
        blank,
        error=relative_error(got, want),
        max_abs=max_abs if math.isfinite(max_abs) else math.inf,
        index=index,
        got=at[0],
        want=at[1],
    )


def _raised(
    case: str, quantity: Quantity, dtype: DType, error: Exception, tensor: str = "every tensor"
) -> TensorResult:
    bound = tolerance(quantity, dtype).bound()
    return TensorResult(case, tensor, quantity, dtype, bound, problem=f"{type(error).__name__}: {error}")


def _prefixed(prefix: str, params: Results) -> Results:
    return {prefix + name: value for name, value in params.items()}
