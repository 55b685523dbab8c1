"""The native models as a runner, through nothing but the package's public numpy contract."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import mamba2_bridge as mb
from mamba2_bridge.output import Mamba2Output
from mamba2_bridge.parity.lazy import LazyArrays
from mamba2_bridge.parity.mamba2_cases import sequence_and_states
from mamba2_bridge.parity.runner import Runner
from mamba2_bridge.parity.stages import PARAM, mamba2_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mamba2_bridge.output import ForecasterOutput
    from mamba2_bridge.parity.cases import AdamW, Array, Arrays, Batch, Case, DType
    from mamba2_bridge.parity.runner import Feed
    from mamba2_bridge.parity.stages import Stage


class NativeRunner(Runner):
    """`mamba2_bridge.Mamba2` and, where the case has ``n_layer``, `Mamba2Forecaster`.

    Parameters
    ----------
    kernels
        ``"auto"``, ``"fused"`` or ``"composed"``. Between a mixer's projections there are tensors to tell of
        in the composed form only.
    device
        ``"cpu"`` or ``"cuda:0"``.
    """

    feeds = True

    def __init__(self, kernels: str = "auto", device: str = "cpu") -> None:
        self.kernels, self.device = kernels, device

    @property
    def name(self) -> str:
        """What reports call it."""
        on = "" if self.device == "cpu" else f" on {self.device}"
        return f"native ({self.kernels}){on}"

    def load(self, case: Case, dtype: DType) -> None:
        """Build the model and load it, as `Runner.load`."""
        for made in ("model", "_out", "_loss", "_grads", "_optimizer"):
            self.__dict__.pop(made, None)  # there may be no room for the old model beside the new one
        self.case = case
        self.model = self.build(case, dtype)
        load(self.model.varmap, case.astype(dtype).params)
        self._optimizer: mb.optim.AdamW | None = None
        self._intermediates: tuple[str, ...] = ()

    def build(self, case: Case, dtype: DType) -> mb.Mamba2 | mb.Mamba2Forecaster:
        """Make the mixer, or the forecaster."""
        options = dict(case.config)
        sizes = {name: options.pop(name) for name in ("n_layer", "d_input", "d_output") if name in options}
        mixer = mb.Mamba2Config(**options)
        if not sizes:
            return mb.Mamba2(mixer, dtype=dtype, device=self.device, kernels=self.kernels)
        config = mb.Mamba2ForecasterConfig(mixer=mixer, **sizes)
        return mb.Mamba2Forecaster(config, dtype=dtype, device=self.device, kernels=self.kernels)

    @property
    def intermediates(self) -> Sequence[str]:
        """Names of what the model recorded, as `Runner.intermediates`."""
        return self._intermediates

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """Tell the stages of a mixer or forecaster, as `Runner.stages`."""
        del names
        return mamba2_stages(self.case.config)

    def forward(self, batch: Batch, feed: Feed | None = None) -> Arrays:
        """Compute everything from inputs to outputs, as `Runner.forward`."""
        self._batch = batch
        x, given = sequence_and_states(batch.inputs)
        states = [mb.Mamba2State(*parts) for parts in given]
        if self.case.by_token:
            return self._by_token(x, states, feed)
        self._out = out = self.model.record(x, self._state(states), feed=_feed(feed))
        self._intermediates = tuple(out.intermediates)
        made = {name: partial(out.intermediates.__getitem__, name) for name in out.intermediates}
        results: dict[str, Callable[[], Array]] = {
            **made,
            "out": lambda: out.y,
            **_of_states("final.", self._named(_finals(out))),
        }
        if batch.target is not None:
            loss = self._loss = out.mse_loss(batch.target)
            results["loss"] = lambda: np.asarray(loss.item())
        return LazyArrays(results)

    def backward(self) -> Arrays:
        """Go back from the last `forward`, as `Runner.backward`."""
        batch = self._batch
        if not batch.starts_backward:
            return {}
        if batch.target is not None:
            grads = self._loss.backward()
        else:
            grads = self._out.backward(self._upstream("out"), self._dstate())
        self._grads = grads
        results = {"u" if "u" in batch.inputs else "x": lambda: grads.input}
        if grads.state is not None:
            results |= _of_states("init.", self._named(_listed(grads.state)))
        results |= {f"{PARAM}{name}": partial(grads.__getitem__, name) for name in grads}
        of = grads.intermediates
        return LazyArrays(results | {name: partial(of.__getitem__, name) for name in of})

    def step(self) -> Arrays:
        """Take a step of the native AdamW, as `Runner.step`."""
        if self.case.optimizer is None:
            raise ValueError(f"{self.case.name} has no optimizer")
        if self._optimizer is None:
            self._optimizer = self.optimizer(self.case.optimizer)
        self._optimizer.step(self._grads)
        params = self.model.varmap
        results = {f"{PARAM}{name}": partial(params.__getitem__, name) for name in params}
        moments = self._optimizer.moments
        return LazyArrays(results | {name: partial(moments.__getitem__, name) for name in moments})

    def optimizer(self, settings: AdamW) -> mb.optim.AdamW:
        """Make the optimizer of the loaded model."""
        return mb.optim.AdamW(
            self.model,
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            no_decay=[name for name in self.model.varmap if not settings.decays(name)],
        )

    def _by_token(self, u: Array, states: Sequence[mb.Mamba2State], feed: Feed | None) -> Arrays:
        mixer = self.model
        if not isinstance(mixer, mb.Mamba2):
            raise ValueError("only a mixer goes through a case token by token")
        state = states[0] if states else mixer.init_state(u.shape[0])
        out = np.empty_like(u)
        passed: dict[str, list[Array]] = {}
        values = None if feed is None else dict(feed.values)
        for t in range(u.shape[1]):
            fed = None if values is None else {name: value[:, t : t + 1] for name, value in values.items()}
            out[:, t], state, intermediates = mixer.record_step(u[:, t], state, feed=fed)
            for name, value in intermediates.items():
                passed.setdefault(name, []).append(value)
        self._intermediates = tuple(passed)
        results = {name: np.concatenate(values, axis=1) for name, values in passed.items()}
        finals = {"final.conv_state": state.conv_state, "final.ssm_state": state.ssm_state}
        return {**results, "out": out, **finals}

    def _state(self, states: list[mb.Mamba2State]) -> Any:
        """Give states as the model takes them."""
        if not states:
            return None
        return states[0] if isinstance(self.model, mb.Mamba2) else states

    def _named(self, states: Sequence[mb.Mamba2State]) -> dict[str, mb.Mamba2State]:
        if isinstance(self.model, mb.Mamba2):
            return {"": states[0]}
        return {f"{i}.": state for i, state in enumerate(states)}

    def _upstream(self, name: str) -> Array:
        given = self._batch.upstream.get(name)
        return np.zeros_like(self._out.y) if given is None else given

    def _dstate(self) -> Any:
        given = {name: value for name, value in self._batch.upstream.items() if name.startswith("final.")}
        if not given:
            return None
        states = []
        for prefix, state in self._named(_finals(self._out)).items():
            parts = {
                part: given.get(f"final.{prefix}{part}", np.zeros_like(getattr(state, part)))
                for part in ("conv_state", "ssm_state")
            }
            states.append(mb.Mamba2State(**parts))
        return self._state(states)


def _finals(out: Mamba2Output | ForecasterOutput) -> list[mb.Mamba2State]:
    return _listed(out.state if isinstance(out, Mamba2Output) else out.states)


def _listed(states: mb.Mamba2State | list[mb.Mamba2State]) -> list[mb.Mamba2State]:
    return [states] if isinstance(states, mb.Mamba2State) else states


def load(varmap: mb.VarMap, params: Arrays) -> None:
    """Set every parameter, reading one at a time.

    Raises
    ------
    StateDictError
        Names or shapes that aren't the model's.
    """
    missing = [name for name in varmap if name not in params]
    unexpected = [name for name in params if name not in varmap]
    if missing or unexpected:
        raise mb.StateDictError(f"parameters missing: {missing}, unexpected: {unexpected}")
    for name in varmap:
        varmap[name] = params[name]


def _of_states(prefix: str, states: dict[str, mb.Mamba2State]) -> dict[str, Callable[[], Array]]:
    return {
        f"{prefix}{of}{part}": partial(getattr, state, part)
        for of, state in states.items()
        for part in ("conv_state", "ssm_state")
    }


def _feed(feed: Feed | None) -> dict[str, Any] | None:
    if feed is None:
        return None
    return {
        name: (value, feed.gradients[name]) if name in feed.gradients else value
        for name, value in feed.values.items()
    }
