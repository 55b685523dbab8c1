"""The group: quick, without the extras, with a clear word where one is missing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

OPTIONAL = ("pandas", "matplotlib", "torch", "safetensors")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter in which a module is not installed."""
    code = f"""
        import sys
        from importlib.abc import MetaPathFinder

        class Absent(MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name.split(".")[0] == {module!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name={module!r})

        sys.meta_path.insert(0, Absent())
        from mamba2_bridge.cli import main
        main(prog_name="mamba2-bridge")
    """
    return python(code, *arguments)


def test_the_help_names_the_commands_and_imports_no_extra():
    done = python(
        f"""
        import sys
        from mamba2_bridge.cli import main
        try:
            main(["--help"])
        finally:
            print([name for name in {OPTIONAL} if name in sys.modules])
        """
    )
    assert done.returncode == 0, done.stderr
    for name in ("train", "predict", "parity", "record", "compare"):
        assert f"  {name} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_the_packages():
    done = python("from mamba2_bridge.cli import main; main()", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("mamba2-bridge, version ")


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("pandas", "train", ["train", "x.csv", "--target", "y", "--out", "run"]),
        ("pandas", "train", ["predict", "run", "x.csv"]),
        ("matplotlib", "train", ["train", "x.csv", "--target", "y", "--out", "run"]),
        ("safetensors", "parity", ["compare", "a", "b"]),
        ("safetensors", "parity", ["record", "--out", "a"]),
        ("torch", "torch", ["record", "--model", "twin", "--out", "a"]),
    ],
)
def test_a_missing_extra_is_named_with_its_install_command(module, extra, arguments):
    done = without(module, *arguments)
    assert done.returncode == 2
    assert f"pip install 'mamba2-bridge[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_a_usage_error():
    done = python("from mamba2_bridge.cli import main; main()", "fly")
    assert done.returncode == 2
    assert "fly" in done.stderr
