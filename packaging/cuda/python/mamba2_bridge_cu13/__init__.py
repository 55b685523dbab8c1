"""The CUDA build of mamba2_bridge's native module; mamba2_bridge loads it."""

CUDA = (13, 0)
"""The CUDA version that it is built with, which the driver must have."""

DRIVER = 580
"""The first release of NVIDIA's driver that has it."""
