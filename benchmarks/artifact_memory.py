"""By how much memory grows while a large model is recorded, and while its artifact is compared.

    python -m benchmarks.artifact_memory            # a forecaster of 24 layers, d_model 768, in fp32

Each step is a process of its own, which tells its growth over what it had after its imports: the peak of the
resident set, from Linux's own books.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mamba2_bridge as mb
from benchmarks.memory import Growth
from mamba2_bridge.cli.sides import SIDES, side
from mamba2_bridge.parity.artifact import compare_artifacts, compare_with_artifact, read, record
from mamba2_bridge.parity.drawn import drawn_case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.report import ParityReport

_MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """Record twice, compare the artifacts, compare a live model with one; print each step's growth."""
    options = _parser().parse_args(arguments)
    if options.step is not None:
        print(json.dumps(_measured(options)))
        return
    folder = Path(tempfile.mkdtemp(prefix="artifact-memory-", dir=options.folder))
    given = [*(sys.argv[1:] if arguments is None else arguments), "--folder", str(folder)]
    try:
        for step in ("reference", "candidate", "compare", "live"):
            command = [sys.executable, "-m", "benchmarks.artifact_memory", *given, "--step", step]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{step:9} {_line(json.loads(done.stdout))}", flush=True)
        size = sum(file.stat().st_size for file in (folder / "reference").rglob("*") if file.is_file())
        print(f"an artifact takes {size / _MIB:,.0f} MiB on the disk")
    finally:
        shutil.rmtree(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.artifact_memory", description=__doc__)
    parser.add_argument("--model", choices=SIDES, default="native")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--n-layer", type=int, default=24)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--seqlen", type=int, default=16)
    parser.add_argument("--steps", type=int, default=0, help="optimizer steps")
    parser.add_argument("--folder", type=Path, help="where the artifacts lie meanwhile")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    return parser


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    runner = side(options.model)
    start = time.perf_counter()
    report: ParityReport | None = None
    with Growth() as growth:
        if options.step in ("reference", "candidate"):
            path = options.folder / options.step
            record(runner, _case(options), path, dtype=options.dtype, floors=False)
        elif options.step == "compare":
            report = compare_artifacts(read(options.folder / "reference"), read(options.folder / "candidate"))
        else:
            reference = read(options.folder / "reference")
            report = compare_with_artifact(reference, runner, dtypes=[options.dtype])
    tensors = {} if report is None else {"tensors": len(report.results), "failed": len(report.failures)}
    return {"growth": growth.bytes, "seconds": time.perf_counter() - start, **tensors}


def _case(options: argparse.Namespace) -> Case:
    mixer = mb.Mamba2Config(d_model=options.d_model).to_dict()
    config = {**mixer, "n_layer": options.n_layer, "d_input": 3, "d_output": 2}
    return drawn_case(config, batch=1, seqlen=options.seqlen, steps=options.steps)


def _line(measured: dict[str, Any]) -> str:
    growth = measured["growth"]
    told = "not told by this system" if growth is None else f"{growth / _MIB:7,.0f} MiB of growth"
    tensors = measured.get("tensors")
    compared = "" if tensors is None else f", {tensors} tensors, {measured['failed']} failed"
    return f"{told}, {measured['seconds']:.0f} s{compared}"


if __name__ == "__main__":
    main()
