"""Sides of the comparison that are made of torch: the twin, any module, transformers' Mamba-2."""

from mamba2_bridge._extras import require

require("torch", "mamba2_bridge.parity.in_torch")
