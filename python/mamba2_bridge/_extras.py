"""Optional dependencies: a missing one is named together with the command that installs it."""

from __future__ import annotations

import importlib

EXTRA_OF = {
    "pandas": "train",
    "matplotlib": "train",
    "torch": "torch",
    "transformers": "transformers",
    "safetensors": "parity",
    "jinja2": "parity",
    "hypothesis": "test",
}


def require(module: str, user: str) -> None:
    """Import `module`, or say which extra brings it.

    Parameters
    ----------
    module : str
        The optional module, one of ``EXTRA_OF``.
    user : str
        What needs it; it starts the message.

    Raises
    ------
    ModuleNotFoundError
        If `module` is not installed.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(missing(module, user), name=module) from error


def missing(module: str, user: str) -> str:
    """Return the message for a `user` that lacks `module`."""
    return f"{user} needs {module}: pip install 'mamba2-bridge[{EXTRA_OF[module]}]'"
