"""Make a folder that is shaped like a CUDA toolkit, of links into NVIDIA's wheels: Candle's builds need one.

``python packaging/cuda/toolkit.py FOLDER``, in an environment with ``toolkit-requirements.txt``. Then
``CUDA_HOME``, ``CUDA_PATH`` and ``NVCC`` are to point there. The driver's library, which no wheel has, is an
empty one: it is only linked to.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

LIBRARIES = ("cublas", "cublasLt", "curand", "nvrtc", "cudart")
STATIC = ("libcudart_static.a", "libcudadevrt.a")


def main(folder: Path) -> None:
    """Make the folder, in place of one that is there."""
    wheels = _wheels()
    shutil.rmtree(folder, ignore_errors=True)
    libraries = folder / "lib64"
    libraries.mkdir(parents=True)
    for name in ("bin", "include", "nvvm"):
        (folder / name).symlink_to(wheels / name, target_is_directory=True)
    for name in LIBRARIES:
        (found,) = wheels.glob(f"lib/lib{name}.so.*")
        for link in (found.name, f"lib{name}.so"):
            (libraries / link).symlink_to(found)
    for name in STATIC:
        (libraries / name).symlink_to(wheels / "lib" / name)
    _empty_library(libraries / "libcuda.so", "libcuda.so.1")
    print(f"{folder}: CUDA {'.'.join(map(str, version(folder)))}")


def version(folder: Path) -> tuple[int, int]:
    """Read the CUDA version of a toolkit from its header."""
    text = (folder / "include" / "cuda.h").read_text(encoding="utf-8")
    found = re.search(r"^#define CUDA_VERSION (\d+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{folder}/include/cuda.h doesn't tell its version")
    return int(found[1]) // 1000, int(found[1]) % 1000 // 10


def _wheels() -> Path:
    spec = util.find_spec("nvidia")
    for parent in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(parent) / "cu13" / "bin" / "nvcc").exists():
            return Path(parent) / "cu13"
    raise SystemExit("NVIDIA's wheels are missing: pip install -r packaging/cuda/toolkit-requirements.txt")


def _empty_library(path: Path, soname: str) -> None:
    command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-x", "c", "/dev/null", "-o", str(path)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
