"""Results don't depend on how many threads compute: every bit is the same."""

import hashlib

import pytest

import mamba2_bridge as mb
from native_models import DTYPES, assert_same, noise, python, run

LARGE = """
import hashlib, sys
import mamba2_bridge as mb
from native_models import noise, run

cfg = mb.Mamba2Config(d_model=48, d_state=16, headdim=16, ngroups=2, chunk_size=64)
results = run(mb.Mamba2(cfg, sys.argv[1]), noise(2, 150, 48, dtype=sys.argv[1]))
print(mb.get_num_threads(), hashlib.sha256(b"".join(value.tobytes() for value in results.values())).hexdigest())
"""


def large(dtype):
    """Results of a model whose products are large enough to be shared out."""
    cfg = mb.Mamba2Config(d_model=48, d_state=16, headdim=16, ngroups=2, chunk_size=64)
    model, u = mb.Mamba2(cfg, dtype), noise(2, 150, 48, dtype=dtype)
    results = run(model, u)
    grads = model.forward(u).mse_loss(u).backward()
    return results | {f"loss.{name}": grad for name, grad in grads.items()} | {"inference": model(u)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_set_while_running(dtype):
    before = mb.get_num_threads()
    try:
        mb.set_num_threads(1)
        want = large(dtype)
        for threads in (2, 3, 8, 1):
            mb.set_num_threads(threads)
            assert_same(large(dtype), want)
    finally:
        mb.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_set_by_the_environment(dtype):
    cfg = mb.Mamba2Config(d_model=48, d_state=16, headdim=16, ngroups=2, chunk_size=64)
    results = run(mb.Mamba2(cfg, dtype), noise(2, 150, 48, dtype=dtype))
    want = hashlib.sha256(b"".join(value.tobytes() for value in results.values())).hexdigest()
    for threads in ("1", "2", "3"):
        assert python(LARGE, dtype, RAYON_NUM_THREADS=threads).split() == [threads, want]


@pytest.mark.parametrize("nonsense", ["0", "-1", "many", "", "100000"])
def test_an_environment_of_nonsense_is_ignored(nonsense):
    code = "import os, mamba2_bridge as mb; print(mb.get_num_threads(), len(os.sched_getaffinity(0)))"
    got, processors = python(code, RAYON_NUM_THREADS=nonsense).split()
    assert got == processors
