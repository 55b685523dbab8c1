"""The norms: root mean square, over groups and with a gate in the mixer, plain in a residual block."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def rms_normalise(y: Tensor, groups: int, eps: float) -> Tensor:
    """Divide each of ``groups`` equal parts of the last dimension by ``sqrt(mean square + eps)``."""
    parts = y.reshape(*y.shape[:-1], groups, y.shape[-1] // groups)
    return (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)).flatten(-2)


class RMSNorm(nn.Module):
    """``x / rms(x) * weight`` over the last dimension.

    Parameters
    ----------
    width
        Size of the last dimension.
    eps
        Added to the mean square.
    """

    def __init__(self, width: int, eps: float = 1e-5, **factory: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, **factory))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` (..., width)."""
        return rms_normalise(x, 1, self.eps) * self.weight


class GatedRMSNorm(nn.Module):
    """Grouped RMS norm with a SiLU gate before or after it (state-spaces' ``RMSNormGated``).

    Parameters
    ----------
    width
        Size of the last dimension, d_ssm.
    groups
        Equal parts that are normalised each by itself.
    eps
        Added to the mean square.
    norm_before_gate
        True: ``norm(y) * weight * silu(z)``. False: ``norm(y * silu(z)) * weight``.
    """

    def __init__(
        self, width: int, groups: int = 1, eps: float = 1e-5, norm_before_gate: bool = False, **factory: Any
    ) -> None:
        super().__init__()
        self.groups = groups
        self.eps = eps
        self.norm_before_gate = norm_before_gate
        self.weight = nn.Parameter(torch.ones(width, **factory))

    def forward(self, y: Tensor, z: Tensor) -> Tensor:
        """Normalise ``y`` and gate it by ``z``, both (..., width)."""
        if self.norm_before_gate:
            return rms_normalise(y, self.groups, self.eps) * self.weight * F.silu(z)
        return rms_normalise(y * F.silu(z), self.groups, self.eps) * self.weight
