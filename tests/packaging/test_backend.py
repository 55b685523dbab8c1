"""Choosing a native module, and every way in which CUDA can be missing, by stand-ins for what is there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native_models import PYTHON_FOLDER, child_environment

ROOT = Path(__file__).parents[2]
SCRIPT = """
import mamba2_bridge as mb
print("backend", mb.backend())
try:
    mb.Mamba2(mb.Mamba2Config(d_model=8, d_state=4, headdim=4), device="cuda:0")
except mb.DeviceError as error:
    print(error)
"""
DRIVER = "int cuDriverGetVersion(int *version) { *version = %d; return %d; }"


@pytest.fixture
def machine(tmp_path):
    """A folder of packages and one of libraries, to stand in for what is installed."""
    packages, libraries = tmp_path / "packages", tmp_path / "libraries"
    package = packages / "mamba2_bridge_cu13"
    shutil.copytree(ROOT / "packaging" / "cuda" / "python" / "mamba2_bridge_cu13", package)
    libraries.mkdir()
    return packages, libraries


def version():
    done = subprocess.run(
        [sys.executable, "-c", "from importlib.metadata import version; print(version('mamba2-bridge'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def installed(packages, number=None):
    """Let the CUDA build be installed, of this version or another."""
    number = number or version()
    folder = packages / f"mamba2_bridge_cu13-{number}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: mamba2-bridge-cu13\nVersion: {number}\n")


def library(folder, name, code=""):
    """Compile a library that stands in for another."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)]
    subprocess.run(command, input=code, text=True, check=True)


def run(machine, script=SCRIPT, **variables):
    packages, libraries = machine
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=child_environment(
            PYTHONPATH=f"{PYTHON_FOLDER}:{packages}", LD_LIBRARY_PATH=str(libraries), **variables
        ),
    )
    return done.stdout + done.stderr


def both(machine):
    """What is said where CUDA would be welcome, and the error where it is asked for."""
    quiet, asked = run(machine), run(machine, MAMBA2_BRIDGE_BACKEND="cuda")
    assert quiet.startswith("backend cpu\nthere is no device 'cuda:0': ")
    message = quiet.partition("there is no device 'cuda:0': ")[2].strip()
    assert asked.strip().endswith(f"DeviceError: {message}")
    return message


def test_without_the_cuda_build_the_cpu_computes(tmp_path):
    message = both((tmp_path, tmp_path))
    assert message == "this build has only 'cpu'; for CUDA pip install 'mamba2-bridge-cu13[runtime]'"


def test_a_build_of_another_version_is_named(machine):
    installed(machine[0], "0.0.1")
    ours = version()
    assert both(machine) == (
        f"mamba2-bridge-cu13 is of version 0.0.1, mamba2-bridge of {ours}: they must be the same; "
        f"pip install 'mamba2-bridge=={ours}' 'mamba2-bridge-cu13=={ours}'"
    )


def test_a_missing_driver_is_named(machine):
    installed(machine[0])
    message = both(machine)
    assert message.startswith("libcuda.so.1 can't be loaded (libcuda.so.1: cannot open shared object file")
    assert message.endswith("a CUDA device needs NVIDIA's driver, 580 or newer")


def test_a_driver_that_is_too_old_is_named_with_both_versions(machine):
    installed(machine[0])
    library(machine[1], "libcuda.so.1", DRIVER % (12040, 0))
    assert both(machine) == (
        "NVIDIA's driver is too old: it has CUDA 12.4, mamba2-bridge-cu13 is built with 13.0: install driver "
        "580 or newer"
    )


def test_a_driver_that_does_not_work_is_named(machine):
    installed(machine[0])
    library(machine[1], "libcuda.so.1", DRIVER % (0, 999))
    assert both(machine).startswith("libcuda.so.1 doesn't tell its CUDA version")


def test_a_missing_library_is_named_with_the_command_that_installs_it(machine):
    installed(machine[0])
    library(machine[1], "libcuda.so.1", DRIVER % (13000, 0))
    shadow = machine[0] / "nvidia"  # of wheels that torch may have brought
    shadow.mkdir()
    (shadow / "__init__.py").touch()
    message = both(machine)
    assert message.startswith("libcudart.so.13 can't be loaded")
    assert message.endswith("pip install 'mamba2-bridge-cu13[runtime]' brings it")


def test_libraries_of_nvidias_wheels_are_found_and_what_cannot_be_loaded_then_is_told(machine):
    installed(machine[0])
    library(machine[1], "libcuda.so.1", DRIVER % (13010, 0))
    wheels = machine[0] / "nvidia" / "cu13" / "lib"
    wheels.mkdir(parents=True)
    for name in ("cudart.so.13", "nvrtc.so.13", "cublasLt.so.13", "cublas.so.13", "curand.so.10"):
        library(wheels, f"lib{name}")
    message = both(machine)
    assert message.startswith("mamba2-bridge-cu13 can't be loaded: ")
    assert "_native_cuda" in message


def test_the_cpu_can_be_asked_for(machine):
    said = run(machine, MAMBA2_BRIDGE_BACKEND="cpu")
    assert said.startswith("backend cpu\nthere is no device 'cuda:0': MAMBA2_BRIDGE_BACKEND was cpu when ")


def test_another_backend_is_refused(machine):
    said = run(machine, MAMBA2_BRIDGE_BACKEND="gpu")
    assert said.strip().endswith("ConfigError: MAMBA2_BRIDGE_BACKEND must be cpu or cuda, got 'gpu'")


def test_both_distributions_have_one_version_and_one_cuda():
    cargo = (ROOT / "Cargo.toml").read_text()
    number = re.search(r'^version = "(.+)"', cargo, re.MULTILINE)[1]
    project = (ROOT / "packaging" / "cuda" / "pyproject.toml").read_text()
    assert f'dependencies = ["mamba2-bridge=={number}"]' in project
    package = (ROOT / "packaging/cuda/python/mamba2_bridge_cu13/__init__.py").read_text()
    major, minor = re.search(r"^CUDA = \((\d+), (\d+)\)", package, re.MULTILINE).groups()
    requirements = (ROOT / "packaging" / "cuda" / "toolkit-requirements.txt").read_text()
    assert f"nvidia-cuda-nvcc=={major}.{minor}." in requirements
