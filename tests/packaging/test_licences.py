"""The licences that go into the wheels are those of all crates that are linked into them."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELEASED = (
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
)


def listed(path, key):
    """A list of texts in a TOML file; Python 3.10 reads no TOML."""
    inside = re.search(rf"^{key} = \[(.*?)\]", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)[1]
    return re.findall(r'"(.+?)"', inside)


@pytest.mark.parametrize("target", RELEASED)
def test_every_linked_crate_is_named_with_its_version(target):
    command = "cargo tree --locked --package mamba2-bridge --features cuda --edges normal --prefix none"
    told = subprocess.run(
        [*command.split(), "--format", "{p}", "--target", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    linked = {re.match(r"(\S+) v(\S+)", line).groups() for line in told.stdout.splitlines() if line}
    text = (ROOT / "THIRD-PARTY-LICENCES.html").read_text(encoding="utf-8")
    named = set(re.findall(r"<li>(\S+) (\S+)</li>", text))
    assert len(linked) > 100
    assert linked <= named, f"run make licences: {sorted(linked - named)}"


def test_both_tools_accept_the_same_licences():
    assert listed("packaging/about.toml", "accepted") == listed("deny.toml", "allow")


def test_the_licences_are_collected_for_every_target_that_is_released():
    assert listed("packaging/about.toml", "targets") == list(RELEASED)


@pytest.mark.parametrize("project", ["pyproject.toml", "packaging/cuda/pyproject.toml"])
def test_both_distributions_hold_the_licences(project):
    names = listed(project, "license-files")
    assert names == ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENCES.html"]
    for name in names:
        assert (ROOT / project).with_name(name).read_text() == (ROOT / name).read_text()
