"""PyTorch beside the native models.

`mamba2_bridge.torch.reference` is the twin: Mamba-2 in plain PyTorch, the yardstick of every parity check.
This package is imported on demand only, so that `import mamba2_bridge` needs no torch.
"""

from mamba2_bridge._extras import require

require("torch", "mamba2_bridge.torch")
