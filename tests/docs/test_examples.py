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
    # The digits depend on the processor; the steps that are shown don't, nor that the task is learnt.
    losses = r"^(?:# )?step (\d+): loss (\S+)$"
    shown = re.findall(losses, block, re.MULTILINE)
    printed = re.findall(losses, capsys.readouterr().out, re.MULTILINE)
    assert [step for step, _ in printed] == [step for step, _ in shown]
    if printed:
        assert float(printed[-1][1]) < float(printed[0][1]) / 50


def test_the_examples_of_parity_run_and_print_what_they_show(capsys):
    namespace = {"__name__": "__main__"}
    for block in python_blocks("docs/parity.md"):
        exec(compile(block, "docs/parity.md", "exec"), namespace)
        shown = re.findall(r"^# (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == shown


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_readme_names_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make parity" in readme
    assert "make test" in readme
