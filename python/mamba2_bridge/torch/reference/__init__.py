"""The twin: Mamba-2 in plain PyTorch, one token after the other, in the dtype of its inputs.

It knows nothing of the native models and imports nothing but torch, so that an error would have to be made
twice to go unseen. It is written to be read beside the paper, not to be fast.

Source: Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060); semantics and parameter names of
``state-spaces/mamba`` (``Mamba2``).

Words
-----
========== ===============================================================================================
batch, b   sequences computed together
seqlen, l  tokens in a sequence
d_model    width of the residual stream
d_inner    ``expand * d_model``, width between the projections
d_ssm      the part of ``d_inner`` that goes through the state space model; the rest is a gated MLP beside it
nheads, h  heads, ``d_ssm / headdim``
headdim, p channels of a head
ngroups, g groups of neighbouring heads that share B and C
d_state, n size of a channel's state
d_conv     length of the causal convolution
conv_dim   channels of the convolution: x, B and C, ``d_ssm + 2 * ngroups * d_state``
========== ===============================================================================================
"""

from mamba2_bridge.torch.reference.forecaster import Block, Mamba2Forecaster
from mamba2_bridge.torch.reference.mixer import Mamba2, Scan, State
from mamba2_bridge.torch.reference.norm import GatedRMSNorm, RMSNorm
from mamba2_bridge.torch.reference.scan import segment_sums, ssd_chunked, ssd_recurrence
from mamba2_bridge.torch.reference.tap import Tap, Tapped, set_tap

__all__ = [
    "Block",
    "GatedRMSNorm",
    "Mamba2",
    "Mamba2Forecaster",
    "RMSNorm",
    "Scan",
    "State",
    "Tap",
    "Tapped",
    "segment_sums",
    "set_tap",
    "ssd_chunked",
    "ssd_recurrence",
]
