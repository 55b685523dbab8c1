"""Sides that can be compared; `mamba2_bridge.parity.runner.Runner` is what they are to the harness.

`native` needs nothing but this package; `twin`, `torch_module` and `huggingface` need torch.
"""
