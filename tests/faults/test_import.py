"""Importing: quick, without torch, and without what only training needs."""

from native_models import python

TIMED = """
import sys, time
import numpy
started = time.perf_counter()
import mamba2_bridge
print(time.perf_counter() - started)
"""


def test_it_takes_less_than_0_3_seconds():
    assert min(float(python(TIMED)) for _ in range(5)) < 0.3


def test_it_brings_numpy_only():
    code = "import sys, mamba2_bridge; print(*sys.modules)"
    loaded = {name.split(".")[0] for name in python(code).split()}
    assert {"mamba2_bridge", "numpy"} <= loaded
    assert not loaded & {"torch", "pandas", "matplotlib", "scipy", "click", "rich", "safetensors", "pytest"}


def test_it_works_without_torch_and_says_what_torch_is_needed_for():
    code = """
import sys
sys.modules["torch"] = sys.modules["pandas"] = sys.modules["matplotlib"] = None
import mamba2_bridge as mb
from native_models import mixer, noise
assert mixer()(noise(1, 2, 8)).shape == (1, 2, 8)
try:
    mb.torch
except ImportError as error:
    print(error)
"""
    assert "torch" in python(code)


def test_it_starts_no_threads():
    code = "import os, mamba2_bridge; print(len(os.listdir('/proc/self/task')))"
    alone = "import os, numpy; print(len(os.listdir('/proc/self/task')))"
    assert python(code, OPENBLAS_NUM_THREADS="1") == python(alone, OPENBLAS_NUM_THREADS="1")


def test_every_public_name_is_there():
    code = """
import mamba2_bridge as mb
assert len(set(mb.__all__)) == len(mb.__all__)
for name in mb.__all__:
    getattr(mb, name)
try:
    mb.nothing
except AttributeError as error:
    print(error)
"""
    assert python(code).strip() == "module 'mamba2_bridge' has no attribute 'nothing'"
