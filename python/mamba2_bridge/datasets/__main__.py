"""``python -m mamba2_bridge.datasets co2`` prints where the CSV file lies, for use in a command line."""

from __future__ import annotations

import sys

from mamba2_bridge.datasets import names, path


def main(arguments: list[str]) -> int:
    """Print the path of the one series named in `arguments`; return the exit code."""
    if len(arguments) != 1 or arguments[0] not in names():
        print(f"usage: python -m mamba2_bridge.datasets {{{','.join(names())}}}", file=sys.stderr)
        return 2
    print(path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
