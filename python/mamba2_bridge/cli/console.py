"""Where commands print tables."""

from __future__ import annotations

from rich.console import Console

_NARROWEST = 20
_DEFAULT = 80


def make_console() -> Console:
    """Make a console as wide as the terminal; 80 columns where it claims to have none."""
    made = Console()
    return made if made.width >= _NARROWEST else Console(width=_DEFAULT)
