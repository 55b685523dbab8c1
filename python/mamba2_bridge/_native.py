"""The native module that computes: importing this gives whichever `_backend` has chosen."""

import sys

from mamba2_bridge._backend import load

sys.modules[__name__] = load()
