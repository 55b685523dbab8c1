"""What the machine can do: products of matrices, copies of memory, the stages of our block.

`mamba2_bridge._native` has two functions for this that are no part of its public interface:

``gemm_seconds(m, k, n, dtype, transposed)``
    Seconds of one product (m, k) · (k, n) through the gemm crate; ``transposed``: the right operand lies as
    (n, k), as a linear layer's weight does.
``stage_seconds(seqlen, backward)``
    Seconds of each stage of one pass over the 130m block in fp32, by name, see `benchmarks.stages`.

A build without the first one has its products measured through PyTorch, and the results say so; without the
second one there is no breakdown.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch

import mamba2_bridge as mb
from benchmarks.sizes import BLOCK
from mamba2_bridge import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.works import DType

_COPIED_BYTES = 2**28
_WAKING_SECONDS = 0.02


@dataclass(frozen=True)
class Product:
    """A product (m, k) · (k, n); ``transposed``: the right operand lies as (n, k)."""

    m: int
    k: int
    n: int
    transposed: bool = False

    @property
    def flops(self) -> int:
        """A multiplication and an addition are two."""
        return 2 * self.m * self.k * self.n


_TOKENS = 2048

PRODUCTS = {
    "2048³": (Product(2048, 2048, 2048),),
    "the block's own": (
        Product(_TOKENS, BLOCK.d_model, BLOCK.d_in_proj, transposed=True),  # in_proj
        Product(_TOKENS, BLOCK.d_inner, BLOCK.d_model, transposed=True),  # out_proj
        Product(_TOKENS, BLOCK.d_in_proj, BLOCK.d_model),  # to the input
        Product(_TOKENS, BLOCK.d_model, BLOCK.d_inner),  # to out_proj's input
        Product(BLOCK.d_in_proj, _TOKENS, BLOCK.d_model),  # to in_proj's weight
    ),
}
"""The products whose speed is the peak, that of the faster set: a large square one, and the block's own."""


class Probe:
    """Measures the machine.

    Parameters
    ----------
    threads
        With how many threads.
    device
        Which part of it: the CPU, or a GPU, where PyTorch multiplies.
    """

    def __init__(self, threads: int, device: str) -> None:
        torch.set_num_threads(threads)
        mb.set_num_threads(threads)
        self._device = torch.device(device)
        self._source = torch.ones(_COPIED_BYTES // 4, device=self._device)
        self._target = torch.ones_like(self._source)

    def gpu(self) -> str | None:
        """Name the GPU; None on the CPU."""
        return torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else None

    def gemm_source(self) -> str:
        """Say what multiplies."""
        if self._device.type == "cuda":
            return "PyTorch"
        return "gemm crate" if _gemm_crate() else "PyTorch: this build has no gemm_seconds"

    def gemm_speeds(self, dtype: DType) -> dict[str, float]:
        """FLOPs a second of each set of `PRODUCTS`, one after the other."""
        multiply = self._multiply()
        start = perf_counter()
        while perf_counter() - start < _WAKING_SECONDS:
            multiply(Product(256, 256, 256), dtype)
        return {
            name: sum(product.flops for product in products)
            / sum(multiply(product, dtype) for product in products)
            for name, products in PRODUCTS.items()
        }

    def copy_bandwidth(self) -> float:
        """Bytes read and written each second by a large copy."""
        self._wait()
        start = perf_counter()
        self._target.copy_(self._source)
        self._wait()
        return 2 * _COPIED_BYTES / (perf_counter() - start)

    def stage_seconds(self, seqlen: int, backward: bool) -> dict[str, float] | None:
        """Seconds of each stage of one pass over the block; None: this build doesn't tell."""
        measure: Callable[[int, bool], dict[str, float]] | None = getattr(_native, "stage_seconds", None)
        return None if measure is None or self._device.type == "cuda" else measure(seqlen, backward)

    def _multiply(self) -> Callable[[Product, DType], float]:
        crate = None if self._device.type == "cuda" else _gemm_crate()
        return crate or self._torch_seconds

    def _torch_seconds(self, product: Product, dtype: DType) -> float:
        options = {"dtype": getattr(torch, dtype), "device": self._device}
        a = torch.ones(product.m, product.k, **options)
        b = (
            torch.ones(product.n, product.k, **options).T
            if product.transposed
            else torch.ones(product.k, product.n, **options)
        )
        out = torch.zeros(product.m, product.n, **options)
        self._wait()
        start = perf_counter()
        torch.mm(a, b, out=out)
        self._wait()
        return perf_counter() - start

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def _gemm_crate() -> Callable[[Product, DType], float] | None:
    measure: Callable[[int, int, int, str, bool], float] | None = getattr(_native, "gemm_seconds", None)
    if measure is None:
        return None
    return lambda product, dtype: measure(product.m, product.k, product.n, dtype, product.transposed)
