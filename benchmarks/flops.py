"""FLOPs of a work: what has to be computed, whoever computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.sizes import MixerSize, StackSize

if TYPE_CHECKING:
    from benchmarks.works import Work

SCAN_CHUNK = 64
"""Tokens of a chunk of the scan. From 32 to 128 the scan's FLOPs hardly depend on it."""

PASSES = {"forward": 1, "forward+backward": 3, "step": 1}
"""Forward passes that a mode is worth: a product has two gradients, each of its own size."""


def flops(work: Work) -> int:
    """FLOPs of the whole work; a multiplication and an addition are two."""
    return round(PASSES[work.mode] * work.tokens * _per_token(work.size, work.seqlen))


def mixer_flops_per_token(size: MixerSize, seqlen: int) -> dict[str, float]:
    """FLOPs of a mixer's forward pass per token, by stage.

    The scan is the chunked one at its cheapest: the causal half alone, C·Bᵀ once for the heads of a group.
    An exponential counts as one FLOP.
    """
    chunk = min(SCAN_CHUNK, seqlen)
    pairs = (chunk + 1) / 2  # tokens j <= i of the same chunk, on average over i
    states = size.d_inner * size.d_state
    return {
        "in_proj": 2 * size.d_model * size.d_in_proj,
        "conv": 2 * size.conv_dim * size.d_conv,
        "scan": 2 * pairs * (size.ngroups * size.d_state + size.d_inner) + 2 * 2 * states,
        "elementwise": (
            5 * size.conv_dim  # bias and SiLU
            + 6 * size.nheads  # softplus, decay
            + 3 * pairs * size.nheads  # decays of a chunk, times C·Bᵀ and dt
            + 2 * states / chunk  # the state's decay from chunk to chunk
            + 2 * size.d_inner  # D
            + 9 * size.d_inner  # gate and norm
        ),
        "out_proj": 2 * size.d_inner * size.d_model,
    }


def _per_token(size: MixerSize | StackSize, seqlen: int) -> float:
    if isinstance(size, MixerSize):
        return sum(mixer_flops_per_token(size, seqlen).values())
    norm_and_residual = 5 * size.mixer.d_model
    layer = _per_token(size.mixer, seqlen) + norm_and_residual
    return 2 * size.d_input * size.mixer.d_model + size.n_layer * layer
