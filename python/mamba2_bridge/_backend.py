"""Which native module computes: this package's own, or that of ``mamba2-bridge-cu13``, which can CUDA, too.

``MAMBA2_BRIDGE_BACKEND`` chooses when the package is imported: ``cpu``, ``cuda``, or where it isn't set CUDA
if that can be used and else the CPU. `mamba2_bridge._native` is what was chosen.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import ConfigError, DeviceError

if TYPE_CHECKING:
    from types import ModuleType

VARIABLE = "MAMBA2_BRIDGE_BACKEND"
BACKENDS = ("cpu", "cuda")

_why_not_cuda: str | None = None


def load() -> ModuleType:
    """Import the native module that is asked for.

    Raises
    ------
    ConfigError
        The variable is set to something else.
    DeviceError
        It asks for CUDA, which can't be used; the message says what is missing and how to get it.
    """
    global _why_not_cuda  # noqa: PLW0603 (written once, while the package is imported)
    asked = os.environ.get(VARIABLE) or None
    if asked is not None and asked not in BACKENDS:
        raise ConfigError(f"{VARIABLE} must be {' or '.join(BACKENDS)}, got {asked!r}")
    if asked == "cpu":
        _why_not_cuda = f"{VARIABLE} was cpu when mamba2_bridge was imported"
    else:
        from mamba2_bridge._cuda import load_cuda  # noqa: PLC0415 (what a CPU needs not)

        try:
            return load_cuda()
        except DeviceError as error:
            if asked == "cuda":
                raise
            _why_not_cuda = str(error)
    return import_module("mamba2_bridge._native_cpu")


def backend() -> str:
    """Tell which native module computes: ``"cpu"``, or ``"cuda"``, which has the device ``"cuda:0"``, too."""
    return "cuda" if _why_not_cuda is None else "cpu"


def why_not_cuda() -> str | None:
    """Tell why there is no CUDA device; None where there is one, as far as loading tells."""
    return _why_not_cuda


def check_device(device: str) -> None:
    """Refuse a CUDA device where there is none.

    Raises
    ------
    DeviceError
        Saying why.
    """
    if device in ("cuda", "cuda:0") and _why_not_cuda is not None:
        raise DeviceError(f"there is no device {device!r}: {_why_not_cuda}")
