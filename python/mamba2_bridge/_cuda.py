"""Loading the CUDA build: what it needs is looked for one by one, so that what is missing has a name."""

from __future__ import annotations

import ctypes
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from mamba2_bridge.exceptions import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

DISTRIBUTION = "mamba2-bridge-cu13"
PACKAGE = "mamba2_bridge_cu13"
INSTALL = f"pip install '{DISTRIBUTION}[runtime]'"

DRIVER = "libcuda.so.1"
LIBRARIES = (
    "libcudart.so.13",
    "libnvrtc.so.13",
    "libcublasLt.so.13",  # before cuBLAS, which is linked to it
    "libcublas.so.13",
    "libcurand.so.10",
)


def load_cuda() -> ModuleType:
    """Import the CUDA build's native module.

    Raises
    ------
    DeviceError
        The build, the driver or a library is missing or doesn't fit.
    """
    package = _package()
    _check_driver(package.CUDA, package.DRIVER)
    for name in LIBRARIES:
        _load_library(name)
    try:
        return import_module(f"{PACKAGE}._native_cuda")
    except ImportError as error:
        raise DeviceError(f"{DISTRIBUTION} can't be loaded: {error}") from error


def _package() -> ModuleType:
    if util.find_spec(PACKAGE) is None:
        raise DeviceError(f"this build has only 'cpu'; for CUDA {INSTALL}")
    ours, theirs = _version("mamba2-bridge"), _version(DISTRIBUTION)
    if ours != theirs:
        raise DeviceError(
            f"{DISTRIBUTION} is of version {theirs}, mamba2-bridge of {ours}: they must be the same; "
            f"pip install 'mamba2-bridge=={ours}' '{DISTRIBUTION}=={ours}'"
        )
    return import_module(PACKAGE)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _check_driver(needed: tuple[int, int], release: int) -> None:
    """Compare the CUDA version of the driver with that of the build."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        raise DeviceError(
            f"{DRIVER} can't be loaded ({error}): a CUDA device needs NVIDIA's driver, {release} or newer"
        ) from error
    number = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(number)) != 0:
        raise DeviceError(f"{DRIVER} doesn't tell its CUDA version; is NVIDIA's driver installed as a whole?")
    found = (number.value // 1000, number.value % 1000 // 10)
    if found < needed:
        has, built = (".".join(map(str, version)) for version in (found, needed))
        raise DeviceError(
            f"NVIDIA's driver is too old: it has CUDA {has}, {DISTRIBUTION} is built with {built}: install "
            f"driver {release} or newer"
        )


def _load_library(name: str) -> None:
    """Load a library from NVIDIA's wheels, or from where the system has it, for the native module to find."""
    for folder in _folders():
        if (folder / name).is_file():
            path = str(folder / name)
            break
    else:
        path = name
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceError(f"{name} can't be loaded ({error}): {INSTALL} brings it") from error


def _folders() -> Iterator[Path]:
    spec = util.find_spec("nvidia")
    for parent in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(parent) / "cu13" / "lib"
