"""The stages of a pass over the 130m block, each with its own bound.

A stage can't be faster than its FLOPs at the machine's GEMM peak, nor than the bytes that it must read and
write at the speed of a copy. What is kept in cache between stages may beat the second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.flops import mixer_flops_per_token
from benchmarks.sizes import BLOCK

if TYPE_CHECKING:
    from benchmarks.results import Peak, StageTime

BROKEN_DOWN = ("forward-2048", "forward+backward-2048")
"""The works whose stages are timed."""

_BYTES = 4
_FLOPS = mixer_flops_per_token(BLOCK, 2048)


@dataclass(frozen=True)
class Bound:
    """What a stage must do for each token.

    Attributes
    ----------
    flops
        FLOPs, of products.
    bytes
        Bytes read and written.
    """

    flops: float = 0
    bytes: float = 0

    def seconds(self, tokens: int, peak: Peak) -> float | None:
        """Give the least time for so many tokens; None where the machine's best isn't known."""
        speed = peak.flops_per_second.get("float32")
        if not speed or not peak.copy_bandwidth:
            return None
        return tokens * max(self.flops / speed, self.bytes / peak.copy_bandwidth)


STAGES = {
    "in_proj": Bound(flops=_FLOPS["in_proj"]),
    "conv": Bound(flops=_FLOPS["conv"], bytes=2 * _BYTES * BLOCK.conv_dim),  # xBC before and after
    "scan": Bound(flops=_FLOPS["scan"]),
    "norm": Bound(bytes=3 * _BYTES * BLOCK.d_inner),  # y, z and the result
    "out_proj": Bound(flops=_FLOPS["out_proj"]),
    "out_proj.backward.input": Bound(flops=_FLOPS["out_proj"]),
    "out_proj.backward.weight": Bound(flops=_FLOPS["out_proj"]),
    "norm.backward": Bound(bytes=5 * _BYTES * BLOCK.d_inner),  # y, z, the gradient; to y and to z
    "scan.backward": Bound(flops=2 * _FLOPS["scan"]),
    "conv.backward": Bound(flops=2 * _FLOPS["conv"], bytes=3 * _BYTES * BLOCK.conv_dim),
    "in_proj.backward.input": Bound(flops=_FLOPS["in_proj"]),
    "in_proj.backward.weight": Bound(flops=_FLOPS["in_proj"]),
}
"""Bounds by the names that ``_native.stage_seconds`` gives its stages; others are shown without a bound."""


def bound_seconds(stage: StageTime, tokens: int, peak: Peak) -> float | None:
    """Give the least time that a stage can take."""
    bound = STAGES.get(stage.stage)
    return None if bound is None else bound.seconds(tokens, peak)
