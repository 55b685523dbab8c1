"""``python -m benchmarks``."""

from benchmarks.cli import main

if __name__ == "__main__":  # the fork server's children import this file, too
    main(prog_name="python -m benchmarks")
