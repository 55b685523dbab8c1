"""The native module: what the package's Python files wrap."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, final

from numpy.typing import ArrayLike, NDArray

__all__ = [
    "NO_DECAY",
    "ForecasterConfig",
    "Gradients",
    "Loss",
    "Mamba2State",
    "MixerConfig",
    "Model",
    "NamedTensors",
    "Optimizer",
    "Output",
    "__version__",
    "audit",
    "candle_operations",
    "clip_grad_norm",
    "gemm_seconds",
    "get_num_threads",
    "instruction_set",
    "replace_folder",
    "set_num_threads",
    "stage_seconds",
    "write_file",
]

__version__: str
NO_DECAY: list[str]

@final
class MixerConfig:
    """A mixer's configuration, checked."""

    def __new__(
        cls,
        *,
        d_model: int,
        d_state: int,
        d_conv: int,
        expand: int,
        headdim: int,
        d_ssm: int | None,
        ngroups: int,
        norm_groups: int | None,
        A_init_range: tuple[float, float],
        conv_init: float | None,
        D_has_hdim: bool,
        rmsnorm: bool,
        norm_before_gate: bool,
        dt_min: float,
        dt_max: float,
        dt_init_floor: float,
        dt_limit: tuple[float, float],
        bias: bool,
        conv_bias: bool,
        norm_eps: float,
        chunk_size: int,
    ) -> MixerConfig: ...
    @property
    def d_inner(self) -> int: ...
    @property
    def nheads(self) -> int: ...
    @property
    def conv_dim(self) -> int: ...

@final
class ForecasterConfig:
    """A forecaster's configuration, checked."""

    def __new__(
        cls, *, mixer: MixerConfig, n_layer: int, d_input: int, d_output: int
    ) -> ForecasterConfig: ...

@final
class Model:
    """A network and its parameters."""

    def __new__(
        cls, config: MixerConfig | ForecasterConfig, *, dtype: str, device: str, seed: int, kernels: str
    ) -> Model: ...
    def forward(self, x: ArrayLike, states: list[Mamba2State] | None = None, *, name: str) -> Output: ...
    def record(
        self,
        x: ArrayLike,
        states: list[Mamba2State] | None,
        feed: list[tuple[str, ArrayLike, ArrayLike | None]],
        *,
        name: str,
    ) -> Output: ...
    def infer(self, x: ArrayLike, *, name: str) -> NDArray[Any]: ...
    def step(
        self, x_t: ArrayLike, states: list[Mamba2State], *, name: str
    ) -> tuple[NDArray[Any], list[Mamba2State]]: ...
    def record_step(
        self,
        x_t: ArrayLike,
        states: list[Mamba2State],
        feed: list[tuple[str, ArrayLike, ArrayLike | None]],
        *,
        name: str,
    ) -> tuple[NDArray[Any], list[Mamba2State], NamedTensors]: ...
    def zero_states(self, batch: int) -> list[Mamba2State]: ...
    def shapes(self) -> list[tuple[str, list[int]]]: ...
    def get(self, name: str) -> NDArray[Any] | None: ...
    def set(
        self, values: dict[str, ArrayLike], *, strict: bool, allow_nonfinite: bool
    ) -> tuple[list[str], list[str]]: ...
    def save(self, path: str | PathLike[str], metadata: Mapping[str, str]) -> None: ...
    def load(
        self, path: str | PathLike[str], *, strict: bool, allow_nonfinite: bool, cast: bool = False
    ) -> tuple[list[str], list[str]]: ...

@final
class Output:
    """Output and states of a forward pass."""

    @property
    def y(self) -> NDArray[Any]: ...
    @property
    def states(self) -> list[Mamba2State]: ...
    @property
    def intermediates(self) -> NamedTensors: ...
    def backward(self, dy: ArrayLike, dstates: list[Mamba2State] | None = None) -> Gradients: ...
    def mse_loss(self, target: ArrayLike) -> Loss: ...

@final
class Loss:
    """A scalar made from an output."""

    def item(self) -> float: ...
    def backward(self) -> Gradients: ...

@final
class Gradients:
    """Gradients that stay native until they are read."""

    def names(self) -> list[str]: ...
    def get(self, name: str) -> NDArray[Any] | None: ...
    @property
    def input(self) -> NDArray[Any]: ...
    @property
    def states(self) -> list[Mamba2State] | None: ...
    @property
    def intermediates(self) -> NamedTensors: ...
    def add(self, other: Gradients) -> None: ...
    def scale(self, factor: float) -> None: ...
    def norms(self) -> dict[str, float]: ...

@final
class NamedTensors:
    """NamedTensors of a forward pass, gradients to them, or an optimizer's moments."""

    def shapes(self) -> list[tuple[str, list[int]]]: ...
    def get(self, name: str) -> NDArray[Any] | None: ...

@final
class Mamba2State:
    """State of one mixer after a token, and likewise a gradient to such a state."""

    def __new__(
        cls, conv_state: ArrayLike, ssm_state: ArrayLike, *, allow_nonfinite: bool = False
    ) -> Mamba2State: ...
    @property
    def conv_state(self) -> NDArray[Any]: ...
    @property
    def ssm_state(self) -> NDArray[Any]: ...
    @property
    def dtype(self) -> str: ...
    def __getnewargs_ex__(self) -> tuple[tuple[NDArray[Any], NDArray[Any]], dict[str, bool]]: ...

@final
class Optimizer:
    """An optimizer of one model's parameters."""

    @staticmethod
    def adamw(
        model: Model,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        no_decay: list[str],
        freeze: list[str],
    ) -> Optimizer: ...
    @staticmethod
    def sgd(
        model: Model,
        *,
        lr: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
        no_decay: list[str],
        freeze: list[str],
    ) -> Optimizer: ...
    def step(self, grads: Gradients) -> None: ...
    @property
    def lr(self) -> float: ...
    def set_lr(self, lr: float) -> None: ...
    def state(self) -> tuple[int, dict[str, float], NamedTensors]: ...
    def load_state(self, step: int, scalars: dict[str, float], arrays: dict[str, ArrayLike]) -> None: ...

def clip_grad_norm(grads: Gradients, max_norm: float) -> float: ...
def write_file(path: str | PathLike[str], contents: bytes) -> None: ...
def replace_folder(staged: str | PathLike[str], target: str | PathLike[str]) -> None: ...
def set_num_threads(n: int) -> None: ...
def get_num_threads() -> int: ...
def instruction_set() -> str: ...
def candle_operations() -> str: ...
def audit(
    model: Model,
    x: ArrayLike,
    target: ArrayLike,
    *,
    name: str,
    directions: int,
    seed: int,
    allowing_zero: list[str],
) -> list[tuple[str, int, list[tuple[str | None, str, str]]]]: ...
def gemm_seconds(m: int, k: int, n: int, dtype: str, transposed: bool) -> float: ...
def stage_seconds(seqlen: int, backward: bool) -> dict[str, float]: ...
