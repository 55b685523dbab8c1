"""What users test their own models with.

`assert_parity` and `assert_grads_close` name what differs; `strategies` holds hypothesis strategies for
configurations, sizes and cases; `faults` the kit of faults that this package's own tests plant.
"""

from mamba2_bridge.testing.assertions import assert_grads_close, assert_parity

__all__ = ["assert_grads_close", "assert_parity"]
