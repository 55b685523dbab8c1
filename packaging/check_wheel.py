"""Try a wheel as users will have it, in clean environments of the oldest and the newest Python at hand.

``python packaging/check_wheel.py dist/mamba2_bridge-*.whl [--torch]``. In each environment `mamba2-bridge
doctor` runs, and the tests run against the installed package, not the source tree: first without PyTorch, and
with ``--torch`` once more with it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST = (3, 10)
LARGEST = 8_000_000
LICENCES = {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENCES.html"}
WITHOUT_TORCH = ("tests/bindings", "tests/faults", "tests/training", "tests/audit")
WITH_TORCH = ("tests/torch_side", "tests/parity")

Version = tuple[int, ...]


def main() -> None:
    """Check a wheel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", action="store_true", help="install PyTorch and transformers, too (3 GB)")
    arguments = parser.parse_args()
    contents(arguments.wheel)
    found = interpreters()
    chosen = dict.fromkeys([min(found), max(found)])
    print(f"Python at hand: {', '.join(map(dotted, sorted(found)))}", flush=True)
    for version in chosen:
        with tempfile.TemporaryDirectory() as folder:
            check(arguments.wheel.resolve(), found[version], Path(folder), torch=arguments.torch)
    print(f"{arguments.wheel.name}: passes on Python {' and '.join(map(dotted, chosen))}")


def contents(wheel: Path) -> None:
    """Look at a wheel's size, and for the licences in it."""
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"{wheel.name} has {size:,} bytes, {LARGEST:,} are allowed")
    with zipfile.ZipFile(wheel) as archive:
        inside = {Path(name).name for name in archive.namelist() if ".dist-info/licenses/" in name}
    if missing := LICENCES - inside:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")


def check(wheel: Path, python: Path, folder: Path, *, torch: bool) -> None:
    """Install a wheel into an environment in ``folder`` and try it there."""
    run(python, "-m", "venv", folder / "venv")
    installed = folder / "venv" / "bin" / "python"
    install(installed, f"{wheel}[parity,test,train]")
    where = output(installed, "-c", "import mamba2_bridge; print(mamba2_bridge.__file__)", cwd=folder)
    if not Path(where).is_relative_to(folder):
        raise SystemExit(f"{where} is not what was installed into {folder}")
    run(folder / "venv" / "bin" / "mamba2-bridge", "doctor", cwd=folder)
    tests(installed, WITHOUT_TORCH, "not torch and not slow")
    if torch:
        install(installed, f"{wheel}[torch,transformers]")
        tests(installed, WITH_TORCH, "not slow")


def tests(python: Path, folders: tuple[str, ...], mark: str) -> None:
    """Run tests of the source tree on the package that ``python`` has."""
    run(python, "-m", "pytest", "-q", "-m", mark, *folders, cwd=ROOT)


def install(python: Path, *what: str) -> None:
    """Install packages."""
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def interpreters() -> dict[Version, Path]:
    """Find the Pythons on the path and pyenv's, by version."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    named = (path for folder in folders for path in folder.glob("python3.*"))
    candidates = {path for path in named if re.fullmatch(r"python3\.\d+", path.name)}
    found = {}
    for path in sorted(candidates):
        ask = [path, "-c", "import sys, venv; print(*sys.version_info[:3])"]
        told = subprocess.run(ask, capture_output=True, text=True, check=False)
        version = tuple(map(int, told.stdout.split())) if told.returncode == 0 else ()
        if version[:2] >= OLDEST:
            found.setdefault(version, path)
    if not found:
        raise SystemExit(f"no Python {dotted(OLDEST)} or newer at hand")
    return found


def dotted(version: Version) -> str:
    """Write a version."""
    return ".".join(map(str, version))


def run(*command: Path | str, cwd: Path | None = None) -> None:
    """Run a command that must succeed, with nothing of this environment's packages."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd, env=environment())


def output(*command: Path | str, cwd: Path | None = None) -> str:
    """Give what a command prints."""
    done = subprocess.run(command, check=True, cwd=cwd, env=environment(), stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Give the environment without what would lead to other packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


if __name__ == "__main__":
    sys.exit(main())
