"""The works: what every contender computes, and what ours alone computes at lengths beyond the others'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.sizes import BLOCK, SMALL, MixerSize, StackSize

Mode = Literal["forward", "forward+backward", "step"]
DType = Literal["float32", "float64"]


@dataclass(frozen=True)
class Work:
    """One thing to compute.

    Attributes
    ----------
    name
        Its name in options and results.
    title
        Its name in tables.
    size
        The model: a mixer, or a forecaster.
    mode
        Forward without a graph; forward, then backward to parameters and input; or one more token.
    batch, seqlen
        Shape of the input.
    dtype
        Of parameters and input.
    contested
        Whether all contenders do it, or ours alone.
    """

    name: str
    title: str
    size: MixerSize | StackSize
    mode: Mode
    batch: int
    seqlen: int
    dtype: DType = "float32"
    contested: bool = True

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.batch * self.seqlen

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of the input, (batch, seqlen, width)."""
        width = self.size.d_input if isinstance(self.size, StackSize) else self.size.d_model
        return self.batch, self.seqlen, width

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output: every token of a mixer, the last timestep's prediction of a forecaster."""
        return (self.batch, self.size.d_output) if isinstance(self.size, StackSize) else self.input_shape


LENGTHS = (512, 2048, 8192)
"""Tokens of the contested block works."""

LONG_LENGTHS = (16384, 32768, 65536)
"""Tokens that ours goes on to, to show that its time per token does not grow."""

MODE_TITLES = {"forward": "forward", "forward+backward": "forward + backward"}


def _block(mode: Literal["forward", "forward+backward"], seqlen: int, dtype: DType = "float32") -> Work:
    suffix = "" if dtype == "float32" else "-fp64"
    return Work(
        name=f"{mode}-{seqlen}{suffix}",
        title=f"block {MODE_TITLES[mode]} {seqlen}{suffix.replace('-', ', ')}",
        size=BLOCK,
        mode=mode,
        batch=1,
        seqlen=seqlen,
        dtype=dtype,
        contested=seqlen not in LONG_LENGTHS,
    )


_ALL = [
    *(_block("forward", seqlen) for seqlen in LENGTHS),
    *(_block("forward+backward", seqlen) for seqlen in LENGTHS),
    _block("forward+backward", 2048, "float64"),
    Work("small-forward", "small forward", SMALL, "forward", batch=32, seqlen=64),
    Work(
        "small-forward+backward", "small forward + backward", SMALL, "forward+backward", batch=32, seqlen=64
    ),
    Work("step", "one decode step of a block", BLOCK, "step", batch=1, seqlen=1),
    *(_block("forward", seqlen) for seqlen in LONG_LENGTHS),
    *(_block("forward+backward", seqlen) for seqlen in LONG_LENGTHS),
]

WORKS = {work.name: work for work in _ALL}
"""All works by name, in the order in which they are done."""

QUICK = ("forward-512", "small-forward+backward", "step")
"""The works of a smoke test."""
