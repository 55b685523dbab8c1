"""Mamba-2 in Rust on Candle: forward, backward and every parameter, from Python."""

from importlib import import_module
from types import ModuleType

from mamba2_bridge import exceptions, optim
from mamba2_bridge._backend import backend
from mamba2_bridge._native import Mamba2State, __version__, get_num_threads, set_num_threads
from mamba2_bridge.auditing import AuditReport, audit
from mamba2_bridge.config import Mamba2Config, Mamba2ForecasterConfig
from mamba2_bridge.exceptions import (
    AuditError,
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    DTypeError,
    GraphError,
    InternalError,
    Mamba2BridgeError,
    MissingGradientError,
    NonFiniteError,
    ParityError,
    ShapeError,
    StateDictError,
)
from mamba2_bridge.gradients import Gradients
from mamba2_bridge.intermediates import Intermediates
from mamba2_bridge.loss import Loss
from mamba2_bridge.model import Mamba2, Mamba2Forecaster, Model
from mamba2_bridge.output import ForecasterOutput, Mamba2Output
from mamba2_bridge.varmap import LoadResult, VarMap

__all__ = [
    "AuditError",
    "AuditReport",
    "CheckpointError",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "ForecasterOutput",
    "Gradients",
    "GraphError",
    "Intermediates",
    "InternalError",
    "LoadResult",
    "Loss",
    "Mamba2",
    "Mamba2BridgeError",
    "Mamba2Config",
    "Mamba2Forecaster",
    "Mamba2ForecasterConfig",
    "Mamba2Output",
    "Mamba2State",
    "MissingGradientError",
    "Model",
    "NonFiniteError",
    "ParityError",
    "ShapeError",
    "StateDictError",
    "VarMap",
    "__version__",
    "audit",
    "backend",
    "exceptions",
    "get_num_threads",
    "optim",
    "set_num_threads",
]


def __getattr__(name: str) -> ModuleType:
    """Import on first use what needs an extra: pandas and matplotlib, or torch."""
    if name in ("datasets", "parity", "testing", "torch", "training"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
