"""``docs/performance.md``, from a run's JSON and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import tables
from benchmarks.plot import plot_growth
from benchmarks.sizes import BLOCK, SMALL
from benchmarks.works import WORKS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Results

DOCUMENT, PICTURE = "performance.md", "performance.svg"


def write_report(results: Results, folder: Path) -> Path:
    """Write the document and its picture; give the document's path."""
    folder.mkdir(parents=True, exist_ok=True)
    plot_growth(results, folder / PICTURE)
    path = folder / DOCUMENT
    path.write_text(document(results), encoding="utf-8")
    return path


def document(results: Results) -> str:
    """Give the document as Markdown."""
    sections = [
        "# Performance",
        "Written by `python -m benchmarks report` from the JSON of `make bench`; not edited by hand.",
        _where(results),
        _what(),
        _section(tables.times(results), "## Times", _TIMES),
        _section(tables.targets(results), "## Targets", _TARGETS),
        _section(tables.memory(results), "## Peak memory", _MEMORY),
        _section(tables.growth(results), "## Growth with the sequence", _GROWTH),
        _section(tables.breakdown(results), "## Where our time goes", _BREAKDOWN),
        _notes(results),
        _HOW,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _where(results: Results) -> str:
    machine, peak = results.machine, results.peak
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    best = "; ".join(
        f"{speed / 1e9:.0f} GFLOP/s in {dtype.replace('float', 'fp')}, {peak.product[dtype]}"
        for dtype, speed in peak.flops_per_second.items()
    )
    lines = [
        f"- Processor: {machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB; "
        f"{' '.join(machine.simd)}",
        *([f"- GPU: {machine.gpu}"] if machine.gpu else []),
        f"- Threads: {results.threads}",
        f"- Versions: {versions}",
        f"- Commit {results.commit}, {results.date}",
        f"- GEMM peak ({peak.source}): {best or tables.ABSENT}",
        f"- Copy bandwidth: {peak.copy_bandwidth / 1e9:.1f} GB/s, read and written",
    ]
    return "\n".join(lines)


def _what() -> str:
    small, work = SMALL.mixer, WORKS["small-forward"]
    return (
        f"The block is one mixer of mamba2-130m (d_model {BLOCK.d_model}, d_state {BLOCK.d_state}, headdim "
        f"{BLOCK.headdim}), batch 1. The small model is a forecaster of {SMALL.n_layer} layers (d_model "
        f"{small.d_model}, d_state {small.d_state}, headdim {small.headdim}), batch {work.batch}, seqlen "
        f"{work.seqlen}. fp32 where nothing else is said."
    )


def _section(table: tables.Table, heading: str, text: str) -> str:
    return f"{heading}\n\n{text}\n\n{table.markdown()}" if table.rows else ""


def _notes(results: Results) -> str:
    lines = tables.notes(results)
    return "## Notes\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


_TIMES = """\
Milliseconds, the least of all rounds; in brackets ours over theirs. The limit is the work's FLOPs at the GEMM
peak, with elementwise work counted at that speed, too. A decode step has none: it waits for its weights."""

_TARGETS = """\
What ours is held to."""

_MEMORY = """\
MiB by which a fresh process grows at the peak of its first call, beyond model and input; of compiled ones, of
the first call after compiling."""

_GROWTH = f"""\
Microseconds per token of a block, batch 1.

![Time per token over the length of the sequence]({PICTURE})"""

_BREAKDOWN = """\
Milliseconds of each stage. Its bound is the greater of its FLOPs at the GEMM peak and of the bytes that it
must read and write at the copy bandwidth; what stays in cache between stages can beat the latter."""

_HOW = """\
## How it is measured

- Each contender runs in a process of its own, with the same parameters and input, and must first agree with
  ours in output and gradients.
- Ours is timed from Python, from numpy arrays to numpy arrays: `m(u)`, `m.forward(u).backward(dy)`, `m.step`.
  PyTorch's is timed from tensors to tensors, forward in inference mode.
- Rounds are interleaved and only one process computes at a time. Threads are woken before each round. A round
  in which other processes took the cores is done again.
- The GEMM peak is the speed of a 2048³ product or of the block's own products in a row, whichever is faster,
  through the gemm crate, measured in every cycle of rounds; a work's limit takes the peak of its own cycles.
  Ours multiplies with products of its own, which may be faster than the crate's.
- *tuned* is `benchmarks/contenders/tuned_torch.py`, Mamba-2 in careful PyTorch; *transformers* is Hugging
  Face's mixer at its fastest chunk size; *twin* is this project's reference in PyTorch in its chunked form,
  made to be read and not to be fast. *Compiled* is under `torch.compile` for the work's own shapes; compiling
  is not timed."""
