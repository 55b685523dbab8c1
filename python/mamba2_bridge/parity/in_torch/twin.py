"""The PyTorch twin as a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mamba2_bridge.parity.in_torch.runner import TorchRunner
from mamba2_bridge.parity.mamba2_cases import sequence_and_states
from mamba2_bridge.parity.stages import mamba2_stages
from mamba2_bridge.torch.reference import Mamba2, Mamba2Forecaster, Scan, State, set_tap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.in_torch.taps import Taps
    from mamba2_bridge.parity.stages import Stage


class TwinRunner(TorchRunner):
    """`mamba2_bridge.torch.reference`.

    Parameters
    ----------
    scan
        ``"recurrence"``, the yardstick, or ``"chunked"``.
    """

    feeds = True

    def __init__(self, scan: Scan = "recurrence") -> None:
        self.scan = scan

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"twin ({self.scan})"

    def build(self, case: Case, dtype: torch.dtype) -> nn.Module:
        """Make the mixer, or the forecaster where the case has ``n_layer``."""
        model = Mamba2Forecaster if "n_layer" in case.config else Mamba2
        return model(**case.config, dtype=dtype, scan=self.scan)

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """Tell the stages of a mixer or forecaster, as `Runner.stages`."""
        del names
        return mamba2_stages(self.case.config)

    def call(self, inputs: Mapping[str, Tensor], taps: Taps) -> dict[str, Tensor]:
        """Run the model, over the whole sequence or token by token."""
        x, given = sequence_and_states(inputs)
        states = [State(*parts) for parts in given]
        if self.case.by_token:
            return self._by_token(x, states, taps)
        set_tap(self.model, taps)
        if isinstance(self.model, Mamba2):
            out, state = self.model(x, states[0] if states else None, return_state=True)
            return _outputs(out, [state], [""])
        assert isinstance(self.model, Mamba2Forecaster)
        out, states = self.model(x, states or None, return_states=True)
        return _outputs(out, states, [f"{i}." for i in range(len(states))])

    def _by_token(self, x: Tensor, states: list[State], taps: Taps) -> dict[str, Tensor]:
        """Step through a mixer's sequence; what goes through the taps is put together again."""
        mixer = self.model
        assert isinstance(mixer, Mamba2)
        state = states[0] if states else mixer.init_state(x.shape[0])
        outputs = []
        passed: dict[str, list[Tensor]] = {}
        for t, u_t in enumerate(x.unbind(1)):

            def tap(name: str, tensor: Tensor, t: int = t) -> Tensor:
                passed.setdefault(name, []).append(tensor)
                fed = taps.fed_values.get(name)
                return tensor if fed is None else fed[:, t : t + 1]

            set_tap(mixer, tap)
            y_t, state = mixer.step(u_t, state)
            outputs.append(y_t)
        taps.values |= {name: torch.cat(tensors, dim=1) for name, tensors in passed.items()}
        return _outputs(torch.stack(outputs, dim=1) if outputs else x, [state], [""])


def _outputs(out: Tensor, states: Sequence[State], prefixes: Sequence[str]) -> dict[str, Tensor]:
    outputs = {"out": out}
    for state, prefix in zip(states, prefixes, strict=True):
        outputs |= {
            f"final.{prefix}conv_state": state.conv_state,
            f"final.{prefix}ssm_state": state.ssm_state,
        }
    return outputs
