"""The whole comparison: every case in both dtypes, optimizer steps on noise, training on real data."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING

from mamba2_bridge.parity.cases import mixer_cases
from mamba2_bridge.parity.compare import TensorResult, compare_case, compare_training
from mamba2_bridge.parity.report import Report
from mamba2_bridge.parity.training import co2_problem, noise_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from mamba2_bridge.parity.runners import Runner


def check(
    candidate: Runner, reference: Runner, *, seed: int = 0, note: Callable[[str], None] = lambda _: None
) -> Report:
    """Compare a candidate with a reference, which is held to be right, in all that there is to compare.

    Parameters
    ----------
    candidate, reference
        The two sides.
    seed
        Of the cases and problems.
    note
        Called with a line about what comes next.
    """
    cases = mixer_cases(seed)
    results: list[TensorResult] = []
    for case in cases:
        note(f"case {case.name}")
        results += compare_case(candidate, reference, case)
    noise, co2 = noise_problem(seed), co2_problem(seed)
    note(f"{len(noise.batches)} steps of {noise.name}")
    steps = compare_training(candidate, reference, noise, "optimizer step")
    note(f"{len(co2.batches)} steps of {co2.name}")
    training = compare_training(candidate, reference, co2, "training")
    return Report(
        candidate=candidate.name,
        reference=reference.name,
        seed=seed,
        cases=len(cases),
        results=[*results, *steps.results, *training.results],
        trajectories=[steps, training],
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Return the versions of what takes part, and the machine's architecture."""
    packages = {}
    for name in ("mamba2-bridge", "numpy", "torch"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {"python": platform.python_version(), **packages, "machine": platform.machine()}
