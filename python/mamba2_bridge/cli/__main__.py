"""``python -m mamba2_bridge.cli`` is the command ``mamba2-bridge``."""

from mamba2_bridge.cli import main

main(prog_name="mamba2-bridge")
