"""Try the CUDA wheel beside the CPU wheel where there is no driver: a clear error, and a CPU that works.

``python packaging/check_cuda_wheel.py CPU_WHEEL CUDA_WHEEL``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
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


def main() -> None:
    """Check the wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs=2, metavar="WHEEL")
    wheels = [wheel.resolve() for wheel in parser.parse_args().wheels]
    for wheel in wheels:
        contents(wheel)
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wheels], check=True)
        told = run(python, folder)
        print(told, end="")
        if "backend: cpu" not in told or "libcuda.so.1 can't be loaded" not in told:
            raise SystemExit("without a driver the CPU must compute, and the device must say what is missing")
        refused = run(python, folder, MAMBA2_BRIDGE_BACKEND="cuda")
        print("MAMBA2_BRIDGE_BACKEND=cuda:", refused.strip().splitlines()[-1])
        if "DeviceError: libcuda.so.1 can't be loaded" not in refused:
            raise SystemExit("a backend that was asked for and isn't there must be an error")


def run(python: Path, folder: str, **variables: str) -> str:
    """Run the script, and give all it prints."""
    done = subprocess.run(
        [python, "-c", TRAIN],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    main()
