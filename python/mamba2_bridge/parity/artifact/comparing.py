"""An artifact held against another, or a live model held against one."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mamba2_bridge.checkpoint import to_json
from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity.artifact.reading import Artifact
from mamba2_bridge.parity.artifact.tensors import read_tensor
from mamba2_bridge.parity.compare import against
from mamba2_bridge.parity.equality import compare_outcomes
from mamba2_bridge.parity.report import ParityReport
from mamba2_bridge.parity.tolerances import DEFAULT
from mamba2_bridge.parity.validity import check_dtypes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mamba2_bridge.parity.artifact.tensors import Entry
    from mamba2_bridge.parity.cases import DType
    from mamba2_bridge.parity.result import TensorResult
    from mamba2_bridge.parity.runner import Feed, Runner
    from mamba2_bridge.parity.tolerances import Policy


def compare_artifacts(
    reference: Artifact, candidate: Artifact, *, policy: Policy = DEFAULT, stop_at_first: bool = False
) -> ParityReport:
    """Compare what two sides made of one case, no model at hand.

    Optimizer steps are compared in fp64, and in fp32 where the policy has a tolerance for them.

    Parameters
    ----------
    reference
        What is held to be right. In fp32, for models too large for fp64, it has no noise floors, and its own
        roundings count as the candidate's.
    candidate
        What is looked at.
    policy
        The tolerances.
    stop_at_first
        Whether to end at the first tensor that fails.

    Raises
    ------
    ConfigError
        Two cases, by their first difference; or a candidate in fp64 and a reference in fp32.
    CheckpointError
        A damaged artifact.
    """
    for artifact in (reference, candidate):
        _must_be_artifact(artifact)
    dtype = candidate.manifest.dtype
    _must_suffice(reference, [dtype])
    if found := _first_difference(reference, candidate):
        raise ConfigError(
            f"{candidate.path} is of another case than {reference.path}: {found}; nothing was compared"
        )
    want, got = reference.outcome, candidate.outcome
    stepped = dtype == "float64" or _tolerates_steps(policy, dtype)
    if not stepped:
        want, got = replace(want, steps=()), replace(got, steps=())
    results = _until_failure(compare_outcomes(reference.case.name, want, got, policy=policy), stop_at_first)
    return ParityReport(
        str(candidate),
        str(reference),
        [reference.case.name],
        results,
        notes=_notes(reference, stepped, candidate),
    )


def compare_with_artifact(
    reference: Artifact,
    candidate: Runner,
    *,
    dtypes: Sequence[DType] | None = None,
    isolated: bool = True,
    policy: Policy = DEFAULT,
    stop_at_first: bool = False,
) -> ParityReport:
    """Run a model on a recorded case and compare it with what was recorded.

    Parameters
    ----------
    reference
        What is held to be right.
    candidate
        What is looked at; an exception of its own is a failure that carries its message.
    dtypes
        The candidate's; None: both, or fp32 alone where the reference is in fp32.
    isolated
        Whether to run the candidate once more with each stage fed the recorded tensors, where it can.
    policy, stop_at_first
        As for `compare_artifacts`.

    Raises
    ------
    ConfigError
        A candidate in fp64 and a reference in fp32.
    CheckpointError
        A damaged artifact.
    """
    _must_be_artifact(reference)
    if dtypes is not None:
        dtypes = check_dtypes(dtypes)
    manifest = reference.manifest
    both: tuple[DType, ...] = ("float64", "float32")
    asked = (both if manifest.dtype == "float64" else both[1:]) if dtypes is None else dtypes
    _must_suffice(reference, asked)

    def fed_losses(feed: Feed) -> Mapping[str, float]:
        whole = feed.values.keys() == set(manifest.intermediates)
        recorded = manifest.fed_losses if whole else None
        return recorded if recorded is not None else reference.outcome.own_losses

    results = against(
        reference.outcome,
        candidate,
        reference.case,
        fed_losses,
        dtypes=asked,
        isolated=isolated,
        policy=policy,
    )
    return ParityReport(
        candidate.name,
        str(reference),
        [reference.case.name],
        _until_failure(results, stop_at_first),
        notes=_notes(reference, "float32" not in asked),
    )


def _must_be_artifact(value: Any) -> None:
    if not isinstance(value, Artifact):
        raise ConfigError(f"an artifact must be what `read` gives, got {type(value).__name__}")


def _until_failure(results: Iterable[TensorResult], stop: bool) -> list[TensorResult]:
    kept = []
    for result in results:
        kept.append(result)
        if stop and not result.passed:
            break
    return kept


def _must_suffice(reference: Artifact, dtypes: Sequence[DType]) -> None:
    if reference.manifest.dtype == "float32" and "float64" in dtypes:
        raise ConfigError(
            f"{reference.path} was recorded in float32: a candidate in float64 needs a reference in float64"
        )


def _tolerates_steps(policy: Policy, dtype: str) -> bool:
    kinds = ("*", "optimizer step")
    return any(row.quantity in kinds and row.dtype in ("*", dtype) for row in policy.tolerances)


def _notes(reference: Artifact, stepped: bool, candidate: Artifact | None = None) -> dict[str, Any]:
    """Tell what was held against what, and which bounds could not be widened."""
    remarks = [f"reference: {_origin(reference)}"]
    if candidate is not None:
        remarks.append(f"candidate: {_origin(candidate)}")
    if reference.manifest.dtype == "float32":
        remarks.append("float32 against float32: the reference's own roundings count as the candidate's")
    if reference.manifest.own_losses is None:
        remarks.append("the reference has no noise floors: no bound is widened by them")
    if reference.manifest.steps and not stepped:
        remarks.append("optimizer steps are not compared in float32: no tolerance is for them")
    return {"remarks": remarks}


def _origin(artifact: Artifact) -> str:
    recorded_by = ", ".join(f"{name} {version}" for name, version in artifact.manifest.versions.items())
    return f"{artifact.path}, {artifact.manifest.runner} in {artifact.manifest.dtype} ({recorded_by})"


def _first_difference(reference: Artifact, candidate: Artifact) -> str | None:
    """Tell where two cases part, None where they don't; their names may differ."""
    return next(_differences(reference, candidate), None)


def _differences(reference: Artifact, candidate: Artifact) -> Iterator[str]:
    want, got = reference.manifest.case, candidate.manifest.case
    yield from _values("config", to_json(dict(want.config)), to_json(dict(got.config)))
    yield from _values("", {"by_token": want.by_token}, {"by_token": got.by_token})
    optimizers = [{} if case.optimizer is None else asdict(case.optimizer) for case in (want, got)]
    yield from _values("optimizer", *optimizers)
    if len(want.batches) != len(got.batches):
        yield f"{len(got.batches)} batches, must be {len(want.batches)}"
    sides = (reference, candidate)
    yield from _tensors("parameter", sides, want.params, got.params)
    for i, (of_want, of_got) in enumerate(zip(want.batches, got.batches, strict=False)):
        yield from _tensors(f"batch {i}, input", sides, of_want.inputs, of_got.inputs)
        yield from _tensors(f"batch {i}, upstream", sides, of_want.upstream, of_got.upstream)
        targets = [[] if batch.target is None else [batch.target] for batch in (of_want, of_got)]
        yield from _tensors(f"batch {i},", sides, *targets)


def _values(of: str, want: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*want, *got]):
        if want.get(name, _ABSENT) != got.get(name, _ABSENT):
            what = f"{of} {name}" if of else name
            yield f"{what} is {got.get(name, _ABSENT)!r}, must be {want.get(name, _ABSENT)!r}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _tensors(
    what: str, sides: tuple[Artifact, Artifact], want: Iterable[Entry], got: Iterable[Entry]
) -> Iterator[str]:
    of_want, of_got = ({entry.name: entry for entry in entries} for entries in (want, got))
    for name in dict.fromkeys([*of_want, *of_got]):
        if name not in of_got or name not in of_want:
            yield f"{what} {name} is {'missing' if name in of_want else 'unexpected'}"
        elif not _equal(sides, of_want[name], of_got[name]):
            a, b = of_want[name], of_got[name]
            yield (
                f"{what} {name} is {b.dtype} of shape {b.shape} with SHA-256 {b.sha256[:12]}…, "
                f"must be {a.dtype} of shape {a.shape} with {a.sha256[:12]}…"
            )


def _equal(sides: tuple[Artifact, Artifact], want: Entry, got: Entry) -> bool:
    """Whether two arrays hold the same numbers; in two dtypes they may."""
    if want.shape != got.shape:
        return False
    if want.dtype == got.dtype:
        return want.sha256 == got.sha256
    a, b = (read_tensor(side.path, entry) for side, entry in zip(sides, (want, got), strict=True))
    return np.array_equal(a, b, equal_nan=True)
