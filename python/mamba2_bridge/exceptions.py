"""What can go wrong, each error saying what was expected, what came, and of which name.

Files keep Python's own ``FileNotFoundError``, ``PermissionError`` and ``OSError``; Ctrl-C is
``KeyboardInterrupt``; too large a model is ``MemoryError``.
"""

from __future__ import annotations


class Mamba2BridgeError(Exception):
    """Base of this package's errors."""


class ShapeError(Mamba2BridgeError, ValueError):
    """An array of another shape than the call needs."""


class DTypeError(Mamba2BridgeError, TypeError):
    """An array of another element type than the model's; nothing is cast in silence."""


class ConfigError(Mamba2BridgeError, ValueError):
    """A field or an option breaks its rule."""


class StateDictError(Mamba2BridgeError, KeyError):
    """Names or shapes of a set of parameters don't fit the model; nothing was written."""

    def __str__(self) -> str:
        """Give the message itself: KeyError would print it as a quoted string."""
        return str(self.args[0]) if self.args else ""


class NonFiniteError(Mamba2BridgeError, ValueError):
    """NaN or infinity where parameters or states are set; ``allow_nonfinite=True`` accepts them."""


class MissingGradientError(Mamba2BridgeError, RuntimeError):
    """Parameters that a backward pass did not reach, by name."""


class GraphError(Mamba2BridgeError, RuntimeError):
    """A graph that is used up, or whose parameters have changed since the forward pass."""


class DeviceError(Mamba2BridgeError, RuntimeError):
    """A device that this build or this machine doesn't have."""


class InternalError(Mamba2BridgeError, RuntimeError):
    """A fault inside the native part, please report it."""


class CheckpointError(Mamba2BridgeError, ValueError):
    """A file or folder that is damaged, or isn't what it should be."""


class DataError(Mamba2BridgeError, ValueError):
    """A table or series that can't be trained on, by row and column."""


class ParityError(Mamba2BridgeError, AssertionError):
    """Two implementations that should be the same function differ, by case, tensor and index."""


class AuditError(Mamba2BridgeError, AssertionError):
    """A model with faults that raise no error elsewhere, by parameter."""
