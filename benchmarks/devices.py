"""Where a run computes."""

CPU = "cpu"
CUDA = "cuda:0"
DEVICES = (CPU, CUDA)
