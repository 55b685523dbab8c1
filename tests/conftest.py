"""What all tests need."""

import signal

import pytest

import mamba2_bridge.model

# A shell that starts this in the background lets it ignore Ctrl-C, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let all models that say nothing of kernels be of one kind, and the tests for a GPU run on a CPU."""
    kinds = ("auto", "fused", "composed")
    parser.addoption("--kernels", choices=kinds, default="auto", help="what kernels='auto' means in this run")
    parser.addoption("--device", choices=("cuda:0", "cpu"), default="cuda:0", help="where tests/cuda compute")


def pytest_configure(config: pytest.Config) -> None:
    """Make ``kernels="auto"`` mean what ``--kernels`` says."""
    asked, check = config.getoption("--kernels"), mamba2_bridge.model._kernels
    mamba2_bridge.model._kernels = lambda kernels: check(asked if kernels == "auto" else kernels)
