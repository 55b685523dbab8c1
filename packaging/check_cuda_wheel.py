"""Try the CUDA wheel beside the CPU wheel on a machine without a driver, as its users would meet it.

``python packaging/check_cuda_wheel.py CPU_WHEEL CUDA_WHEEL``. Without a driver: a clear error, and a CPU that
works. With a driver that stands in for NVIDIA's and finds no GPU: the module loads with the libraries of
NVIDIA's wheels, computes on the CPU, and says what the driver said. A driver that is too old: both versions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from check_wheel import contents

TRAIN = """
import numpy as np
import mamba2_bridge as mb

model = mb.Mamba2(mb.Mamba2Config(d_model=8, d_state=4, headdim=4))
out = model.forward(np.ones((1, 5, 8), np.float32))
mb.optim.AdamW(model, lr=1e-3).step(out.backward(np.ones_like(out.y)))
print("backend:", mb.backend())
try:
    mb.Mamba2(mb.Mamba2Config(d_model=8, d_state=4, headdim=4), device="cuda:0")
except mb.DeviceError as error:
    print("device='cuda:0':", error)
"""

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE``, which is what every function of the stand-in gives."""


def main() -> None:
    """Check the wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs=2, metavar="WHEEL")
    cpu, cuda = (wheel.resolve() for wheel in parser.parse_args().wheels)
    for wheel in (cpu, cuda):
        contents(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]

        subprocess.run([*pip, cpu], check=True)
        expect(folder, {}, "backend: cpu", "this build has only 'cpu'")

        subprocess.run([*pip, cuda], check=True)
        expect(folder, {}, "backend: cpu", "libcuda.so.1 can't be loaded")
        expect(
            folder, {"MAMBA2_BRIDGE_BACKEND": "cuda"}, "DeviceError: libcuda.so.1 can't be loaded", "580 or"
        )

        functions = driver_functions(cuda, folder)
        old = stand_in(folder / "old", functions, version=12090)
        expect(folder, old, "backend: cpu", "it has CUDA 12.9, mamba2-bridge-cu13 is built with 13.0")
        new = stand_in(folder / "new", functions, version=13000)
        expect(folder, new, "backend: cpu", "libcudart.so.13 can't be loaded")

        subprocess.run([*pip, f"{cuda}[runtime]"], check=True)
        expect(folder, new, "backend: cuda", "device 'cuda:0' can't be used", "CUDA_ERROR_NO_DEVICE")
        expect(folder, {**new, "MAMBA2_BRIDGE_BACKEND": "cpu"}, "backend: cpu", "BACKEND was cpu when")
    print(f"{cpu.name} and {cuda.name}: pass without a GPU")


def expect(folder: Path, variables: dict[str, str], *texts: str) -> None:
    """Run the script with these variables, and look for texts in what it prints."""
    done = subprocess.run(
        [folder / "venv" / "bin" / "python", "-c", TRAIN],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    shown = " ".join(f"{name}={Path(value).name}" for name, value in variables.items())
    print(f"--- {shown or 'as installed'}")
    print("\n".join(done.stdout.strip().splitlines()[-2:]), flush=True)
    if missing := [text for text in texts if text not in done.stdout]:
        raise SystemExit(f"expected {missing} in:\n{done.stdout}")


def driver_functions(wheel: Path, folder: Path) -> list[str]:
    """Name what a CUDA wheel's module calls of the driver."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        module = archive.extract(name, folder / "unpacked")
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", module], check=True, stdout=subprocess.PIPE, text=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    return sorted(name for name in names if name[:2] == "cu" and name[2].isupper())


def stand_in(folder: Path, functions: list[str], *, version: int) -> dict[str, str]:
    """Compile a driver that finds no GPU, and give the variable with which it is found."""
    others = (name for name in functions if name != "cuDriverGetVersion")
    code = [f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in others]
    code.append(f"int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}")
    folder.mkdir()
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-"]
    target = folder / "libcuda.so.1"
    subprocess.run([*command, "-o", target], input="\n".join(code), text=True, check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


if __name__ == "__main__":
    main()
