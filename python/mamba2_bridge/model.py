"""The models: a Mamba-2 mixer and a forecaster, their parameters native and seen as numpy arrays."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mamba2_bridge import _native, checkpoint
from mamba2_bridge._backend import check_device
from mamba2_bridge.config import Mamba2Config, Mamba2ForecasterConfig
from mamba2_bridge.exceptions import ConfigError, StateDictError
from mamba2_bridge.intermediates import Intermediates, fed_arrays
from mamba2_bridge.output import ForecasterOutput, Mamba2Output
from mamba2_bridge.states import one_state, state_list
from mamba2_bridge.varmap import LoadResult, VarMap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from mamba2_bridge._native import Mamba2State
    from mamba2_bridge.intermediates import Feed

_C = TypeVar("_C", Mamba2Config, Mamba2ForecasterConfig)
_M = TypeVar("_M", bound="Model[Any]")


class Model(ABC, Generic[_C]):
    """What all models share: parameters, files, copies.

    Parameters
    ----------
    cfg
        The configuration.
    dtype
        ``"float32"`` or ``"float64"``, of parameters, inputs and everything between.
    device
        ``"cpu"``, or ``"cuda:0"`` in a CUDA build.
    seed
        Seed of the initial values. Each parameter's values depend on the seed and on its name only.
    kernels
        ``"fused"``: kernels written for a CPU, fast; ``"composed"``: Candle's own operations, on any
        device, the readable reference; ``"auto"``: fused on a CPU, else composed.

    Raises
    ------
    ConfigError
        A wrong option.
    DTypeError
        Another dtype.
    DeviceError
        A device that this build or machine doesn't have.
    MemoryError
        Parameters that don't fit into memory.
    """

    config_class: ClassVar[type[Any]]
    """The class of the model's configuration."""

    def __init__(
        self,
        cfg: _C,
        dtype: str = "float32",
        device: str = "cpu",
        seed: int = 0,
        kernels: str = "auto",
    ) -> None:
        if not isinstance(cfg, self.config_class):
            expected = self.config_class.__name__
            raise ConfigError(f"cfg must be a {expected}, got {type(cfg).__name__}")
        self._cfg: _C = cfg
        self._dtype = _dtype_name(dtype)
        self._device = str(device)
        check_device(self._device)
        self._seed = _seed(seed)
        self._kernels = _kernels(kernels)
        self._native = _native.Model(
            cfg._native(), dtype=self._dtype, device=self._device, seed=self._seed, kernels=self._kernels
        )
        self._varmap = VarMap(self._native)

    @abstractmethod
    def forward(self, x: ArrayLike, /) -> Any:
        """Output and state of an input, with the graph that a backward needs."""

    @property
    def config(self) -> _C:
        """The configuration."""
        return self._cfg

    @property
    def dtype(self) -> str:
        """Element type: ``"float32"`` or ``"float64"``."""
        return self._dtype

    @property
    def device(self) -> str:
        """The device that the parameters live on."""
        return self._device

    @property
    def varmap(self) -> VarMap:
        """The parameters by name: reading copies, setting checks."""
        return self._varmap

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copy all parameters, in the model's order."""
        return dict(self._varmap)

    def load_state_dict(
        self, values: Mapping[str, ArrayLike], strict: bool = True, *, allow_nonfinite: bool = False
    ) -> LoadResult:
        """Set the parameters: all of them, or none and an error.

        Parameters
        ----------
        values
            Arrays by name, of the model's dtype.
        strict
            Exactly the model's names. False: sets those that are given and reports the rest.
        allow_nonfinite
            Accept NaN and infinity.

        Returns
        -------
        LoadResult
            ``(missing_keys, unexpected_keys)``.

        Raises
        ------
        StateDictError
            Missing or unexpected names, or another shape.
        DTypeError
            Another element type than the model's.
        ValueError
            NaN or infinity.
        """
        if not isinstance(values, Mapping):
            raise StateDictError(f"a mapping from names to arrays is needed, got {type(values).__name__}")
        strange = [name for name in values if not isinstance(name, str)]
        if strange:
            raise StateDictError(f"names must be strings, got {strange[0]!r}; nothing was loaded")
        return LoadResult(*self._native.set(dict(values), strict=strict, allow_nonfinite=allow_nonfinite))

    def num_parameters(self) -> int:
        """How many numbers the parameters hold."""
        return sum(_product(shape) for _, shape in self._native.shapes())

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Write configuration and parameters to a folder; one that is there is replaced atomically.

        Raises
        ------
        OSError
            The folder can't be written; what was there stays.
        CheckpointError
            ``folder`` is there and is not such a folder: nothing is replaced.
        """
        checkpoint.save(folder, type(self).__name__, self._cfg.to_dict(), self._varmap)

    @classmethod
    def from_pretrained(
        cls: type[_M],
        folder: str | PathLike[str],
        dtype: str = "float32",
        device: str = "cpu",
        kernels: str = "auto",
        *,
        allow_nonfinite: bool = False,
    ) -> _M:
        """Make the model of a folder that `save_pretrained` wrote.

        Parameters
        ----------
        folder
            The folder.
        dtype
            The model's dtype; parameters stored in the other one are rounded or widened to it.
        device, kernels
            As for a new model.
        allow_nonfinite
            Accept NaN and infinity.

        Raises
        ------
        OSError
            Its files can't be read.
        CheckpointError
            They are damaged, or hold another kind of model, NaN or infinity.
        StateDictError
            The parameters aren't those of the configuration.
        """
        config = checkpoint.read_config(folder, cls.__name__, cls.config_class)
        model = cls(config, dtype=dtype, device=device, kernels=kernels)
        weights = checkpoint.weights(folder)
        model._native.load(weights, strict=True, allow_nonfinite=allow_nonfinite, cast=True)
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by configuration and parameters."""
        options = (self._dtype, self._device, self._seed, self._kernels)
        return _rebuild, (type(self), self._cfg, options, self.state_dict())

    def __repr__(self) -> str:
        """Give configuration, dtype, device and size."""
        return (
            f"{type(self).__name__}({self._cfg!r}, dtype={self._dtype!r}, device={self._device!r}, "
            f"parameters={self.num_parameters():,})"
        )


class Mamba2(Model[Mamba2Config]):
    """One Mamba-2 mixer: state-spaces' ``Mamba2``.

    Parameters
    ----------
    cfg
        A `Mamba2Config`.
    dtype
        ``"float32"`` or ``"float64"``.
    device
        ``"cpu"``, or ``"cuda:0"`` in a CUDA build.
    seed
        Seed of the initial values.
    kernels
        ``"auto"``, ``"fused"`` or ``"composed"``.

    Examples
    --------
    >>> import numpy as np, mamba2_bridge as mb
    >>> m = mb.Mamba2(mb.Mamba2Config(d_model=32, headdim=16, d_state=16), dtype="float64")
    >>> out = m.forward(np.ones((2, 5, 32)))
    >>> out.y.shape, out.state.ssm_state.shape
    ((2, 5, 32), (2, 4, 16, 16))
    >>> grads = out.backward(np.ones((2, 5, 32)))
    >>> grads["A_log"].shape, grads.input.shape
    ((4,), (2, 5, 32))
    """

    config_class = Mamba2Config

    def forward(self, u: ArrayLike, state: Mamba2State | None = None) -> Mamba2Output:
        """Output and state, with the graph that `Mamba2Output.backward` needs.

        Parameters
        ----------
        u
            (batch, seqlen, d_model), of the model's dtype. batch and seqlen may be 0.
        state
            What came before; None: nothing.

        Raises
        ------
        ShapeError, DTypeError
            An input or a state that doesn't fit.
        """
        states = None if state is None else [one_state("state", state)]
        return Mamba2Output(self._native.forward(u, states, name="u"))

    def record(
        self, u: ArrayLike, state: Mamba2State | None = None, feed: Feed | None = None
    ) -> Mamba2Output:
        """`forward`, and the intermediates with their gradients, each replaced where one is fed.

        Recording changes no bit of the output, the state or the gradients.

        Parameters
        ----------
        u
            (batch, seqlen, d_model), of the model's dtype. batch and seqlen may be 0.
        state
            What came before; None: nothing.
        feed
            Values, or pairs of value and gradient (a tuple), by the names of `Intermediates`, each of the
            intermediate's shape and the model's dtype. The fed value goes on to what comes after in the
            forward pass, the fed gradient to what comes before in the backward pass; without one, what
            arrives does. So with everything fed from another implementation, each stage runs on that one's
            inputs and upstream gradients, and no stage's error reaches the next. What is recorded is always
            what arrived.

        Returns
        -------
        Mamba2Output
            With ``intermediates``; the `Gradients` of its backward have ``intermediates``, too.

        Raises
        ------
        ShapeError, DTypeError
            An input, a state or something fed that doesn't fit, by name.
        ConfigError
            A feed by names that no intermediate has: the error lists those that there are.

        Notes
        -----
        In float32, ``kernels="composed"`` computes `dt` and `scan` in float64 on a CPU. They are recorded in
        float32, so feeding them their own recorded values rounds what goes on; of all others it changes no
        bit.

        Examples
        --------
        >>> import numpy as np, mamba2_bridge as mb
        >>> cfg = mb.Mamba2Config(d_model=32, headdim=16, d_state=16)
        >>> m = mb.Mamba2(cfg, dtype="float64", kernels="composed")
        >>> out = m.record(np.ones((2, 5, 32)))
        >>> list(out.intermediates)
        ['in_proj.z', 'in_proj.xBC', 'in_proj.dt', 'conv', 'dt', 'scan', 'norm', 'out_proj']
        >>> grads = out.backward(np.ones((2, 5, 32)))
        >>> out.intermediates["scan"].shape, grads.intermediates["scan"].shape
        ((2, 5, 64), (2, 5, 64))
        >>> without = m.record(np.ones((2, 5, 32)), feed={"scan": np.zeros((2, 5, 64))})
        >>> bool(without.y.any())
        False
        """
        states = None if state is None else [one_state("state", state)]
        return Mamba2Output(self._native.record(u, states, fed_arrays(feed), name="u"))

    def __call__(self, u: ArrayLike) -> NDArray[Any]:
        """Give the output alone, without a graph: u (batch, seqlen, d_model) -> the same shape."""
        return self._native.infer(u, name="u")

    def step(self, u_t: ArrayLike, state: Mamba2State) -> tuple[NDArray[Any], Mamba2State]:
        """Process the next token, without a graph; equals `forward` in every option.

        Gradients through single tokens: `forward` with seqlen 1, and `backward` with ``dstate``.

        Parameters
        ----------
        u_t
            (batch, d_model).
        state
            What came before, see `init_state`.

        Returns
        -------
        y_t
            (batch, d_model).
        state
            The state after the token.

        Raises
        ------
        ShapeError, DTypeError
            An input or a state that doesn't fit.
        """
        y_t, states = self._native.step(u_t, [one_state("state", state)], name="u_t")
        return y_t, states[0]

    def record_step(
        self, u_t: ArrayLike, state: Mamba2State, feed: Mapping[str, ArrayLike] | None = None
    ) -> tuple[NDArray[Any], Mamba2State, Intermediates]:
        """`step`, and the intermediates of the token, each replaced where one is fed.

        Parameters
        ----------
        u_t
            (batch, d_model).
        state
            What came before, see `init_state`.
        feed
            Values as for `record`, without gradients: a step has no backward.

        Returns
        -------
        y_t
            (batch, d_model).
        state
            The state after the token.
        intermediates
            As of `record`, with seqlen 1: (batch, 1, width).

        Raises
        ------
        ShapeError, DTypeError
            An input, a state or something fed that doesn't fit, by name.
        ConfigError
            A feed by names that no intermediate has, or with gradients.
        """
        given = [one_state("state", state)]
        y_t, states, native = self._native.record_step(u_t, given, fed_arrays(feed), name="u_t")
        return y_t, states[0], Intermediates(native)

    def init_state(self, batch: int) -> Mamba2State:
        """Zeros: the state before the first token of ``batch`` sequences."""
        return self._native.zero_states(_batch(batch))[0]


class Mamba2Forecaster(Model[Mamba2ForecasterConfig]):
    """Sequence in, prediction from the last timestep out.

    An encoder, residual Mamba-2 blocks with a norm before each, a norm, and a head on the last timestep.

    Parameters
    ----------
    cfg
        A `Mamba2ForecasterConfig`.
    dtype
        ``"float32"`` or ``"float64"``.
    device
        ``"cpu"``, or ``"cuda:0"`` in a CUDA build.
    seed
        Seed of the initial values.
    kernels
        ``"auto"``, ``"fused"`` or ``"composed"``.
    """

    config_class = Mamba2ForecasterConfig

    def forward(self, x: ArrayLike, states: Sequence[Mamba2State] | None = None) -> ForecasterOutput:
        """Prediction and states, with the graph that `ForecasterOutput.backward` needs.

        Parameters
        ----------
        x
            (batch, seqlen, d_input), of the model's dtype; seqlen is at least 1.
        states
            What came before, one a layer; None: nothing.

        Raises
        ------
        ShapeError, DTypeError
            An input or a state that doesn't fit.
        """
        given = None if states is None else state_list("states", states)
        return ForecasterOutput(self._native.forward(x, given, name="x"))

    def record(
        self, x: ArrayLike, states: Sequence[Mamba2State] | None = None, feed: Feed | None = None
    ) -> ForecasterOutput:
        """`forward`, and the intermediates with their gradients, each replaced where one is fed.

        Parameters
        ----------
        x
            (batch, seqlen, d_input), of the model's dtype; seqlen is at least 1.
        states
            What came before, one a layer; None: nothing.
        feed
            Values, or pairs of value and gradient, by the names of `Intermediates`. See `Mamba2.record`.

        Raises
        ------
        ShapeError, DTypeError
            An input, a state or something fed that doesn't fit, by name.
        ConfigError
            A feed by names that no intermediate has: the error lists those that there are.
        """
        given = None if states is None else state_list("states", states)
        return ForecasterOutput(self._native.record(x, given, fed_arrays(feed), name="x"))

    def __call__(self, x: ArrayLike) -> NDArray[Any]:
        """Give the prediction alone, without a graph: x (batch, seqlen, d_input) -> (batch, d_output)."""
        return self._native.infer(x, name="x")

    def step(self, x_t: ArrayLike, states: Sequence[Mamba2State]) -> tuple[NDArray[Any], list[Mamba2State]]:
        """Process the next timestep: x_t (batch, d_input) -> the prediction (batch, d_output) and the states.

        After the last timestep of a sequence the prediction equals `forward`'s.

        Raises
        ------
        ShapeError, DTypeError
            An input or a state that doesn't fit.
        """
        return self._native.step(x_t, state_list("states", states), name="x_t")

    def record_step(
        self,
        x_t: ArrayLike,
        states: Sequence[Mamba2State],
        feed: Mapping[str, ArrayLike] | None = None,
    ) -> tuple[NDArray[Any], list[Mamba2State], Intermediates]:
        """`step`, and the intermediates of the timestep, each replaced where one is fed.

        See `Mamba2.record_step`; `norm_f` and `head` have no seqlen.

        Raises
        ------
        ShapeError, DTypeError
            An input, a state or something fed that doesn't fit, by name.
        ConfigError
            A feed by names that no intermediate has, or with gradients.
        """
        given = state_list("states", states)
        y, after, native = self._native.record_step(x_t, given, fed_arrays(feed), name="x_t")
        return y, after, Intermediates(native)

    def init_state(self, batch: int) -> list[Mamba2State]:
        """Zeros: the states before the first timestep of ``batch`` sequences, one a layer."""
        return self._native.zero_states(_batch(batch))


def _rebuild(cls: type[_M], cfg: Any, options: tuple[Any, ...], values: dict[str, Any]) -> _M:
    model = cls(cfg, *options)
    model.load_state_dict(values, allow_nonfinite=True)
    return model


def _dtype_name(dtype: Any) -> str:
    """Name of a dtype: a string, or numpy's own (``np.float32``, ``np.dtype("float32")``)."""
    return dtype if isinstance(dtype, str) else str(getattr(dtype, "__name__", dtype))


def _kernels(kernels: Any) -> str:
    if kernels in ("auto", "fused", "composed"):
        return str(kernels)
    raise ConfigError(f"kernels must be 'auto', 'fused' or 'composed', got {kernels!r}")


def _seed(seed: Any) -> int:
    return _integer("seed", seed, 2**64)


def _batch(batch: Any) -> int:
    return _integer("batch", batch, 2**31)


def _integer(name: str, value: Any, end: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < end:
        rule = f"an integer from 0 to below 2**{end.bit_length() - 1}"
        raise ConfigError(f"{name} must be {rule}, got {value!r}")
    return number


def _product(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
