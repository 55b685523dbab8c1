"""Imported before the rest of the package, which can't be imported without pandas."""

from mamba2_bridge._extras import require

require("pandas", "mamba2_bridge.training")
