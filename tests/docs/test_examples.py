"""What the documentation shows is run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ["mamba2_bridge.model"]


def python_blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", python_blocks("README.md"), ids=lambda block: block.splitlines()[0])
def test_the_readmes_examples_run(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    shown = re.findall(r"^# (step .*)$", block, re.MULTILINE)
    assert [line for line in printed.splitlines() if line in shown] == shown


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_readme_names_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make parity" in readme
    assert "make test" in readme
