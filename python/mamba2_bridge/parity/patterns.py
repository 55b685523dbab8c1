"""Patterns of names: ``*`` and ``?`` as in a shell, everything else as it is."""

from __future__ import annotations

from fnmatch import fnmatchcase


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern; brackets, which names of tensors have, are brackets."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
