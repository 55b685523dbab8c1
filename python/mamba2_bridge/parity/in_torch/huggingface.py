"""The mixer of Hugging Face's transformers as a runner.

Whatever its dtype, its scan and its norm compute in fp32: `POLICY` allows in fp64 what fp32 would lose.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mamba2_bridge._extras import require
from mamba2_bridge.parity.in_torch.runner import TorchRunner
from mamba2_bridge.parity.stages import mamba2_stages
from mamba2_bridge.parity.tolerances import DEFAULT, Policy

require("transformers", "mamba2_bridge.parity.in_torch.huggingface")

from transformers import DynamicCache, Mamba2Config  # noqa: E402 (only now is it sure to be there)
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer  # noqa: E402
from transformers.utils import logging  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from mamba2_bridge.parity.cases import Case
    from mamba2_bridge.parity.in_torch.taps import Taps
    from mamba2_bridge.parity.stages import Stage

POLICY = Policy.read(Path(__file__).with_suffix(".json")).before(DEFAULT)
"""Tolerances for a candidate or reference of which a part is in fp32."""

_FIELDS = {
    "d_model": "hidden_size",
    "d_state": "state_size",
    "d_conv": "conv_kernel",
    "expand": "expand",
    "headdim": "head_dim",
    "ngroups": "n_groups",
    "bias": "use_bias",
    "conv_bias": "use_conv_bias",
    "norm_eps": "layer_norm_epsilon",
    "dt_limit": "time_step_limit",
    "chunk_size": "chunk_size",
}
"""Mamba2Config's fields and what transformers calls them."""

_FIXED: dict[str, Any] = {"D_has_hdim": False, "rmsnorm": True, "norm_before_gate": False}
"""Options that transformers' mixer has one value of."""


class HuggingFaceRunner(TorchRunner):
    """``transformers``' ``Mamba2Mixer`` on the path that it takes on a CPU: cases without states."""

    feeds = True

    @property
    def name(self) -> str:
        """What reports call it."""
        return "transformers"

    def build(self, case: Case, dtype: torch.dtype) -> nn.Module:
        """Make its mixer.

        Raises
        ------
        ValueError
            An option that it doesn't have, a state, a forecaster, or a case that goes token by token.
        """
        config = dict(case.config)
        wrong = [
            f"{name}={config[name]!r}" for name, only in _FIXED.items() if config.get(name, only) != only
        ]
        d_inner = config.get("expand", 2) * config["d_model"]
        if config.get("d_ssm") not in (None, d_inner):
            wrong.append(f"d_ssm={config['d_ssm']}")
        if config.get("norm_groups") not in (None, config.get("ngroups", 1)):
            wrong.append(f"norm_groups={config['norm_groups']}")
        wrong += [name for name in case.batch.inputs if name != "u"]
        wrong += ["n_layer"] * ("n_layer" in config) + ["by_token"] * case.by_token
        if wrong:
            raise ValueError(f"transformers' mixer can't do {', '.join(wrong)}")
        fields = {theirs: config[ours] for ours, theirs in _FIELDS.items() if ours in config}
        heads = d_inner // config.get("headdim", 64)
        self._config = Mamba2Config(num_heads=heads, num_hidden_layers=1, **fields)
        with _quiet():  # that it has no fast kernels here is told in three long lines
            mixer: nn.Module = Mamba2Mixer(self._config, 0).to(dtype)
        return mixer

    def stages(self, names: Sequence[str]) -> Sequence[Stage]:
        """Tell the stages of a mixer."""
        del names
        return mamba2_stages(self.case.config)

    def call(self, inputs: Mapping[str, Tensor], taps: Taps) -> dict[str, Tensor]:
        """Run the mixer; what goes in and out of its parts goes through the taps."""
        mixer: Any = self.model
        dtype = mixer.A_log.dtype

        def tap(name: str, tensor: Tensor) -> Tensor:
            return taps(name, tensor.to(dtype)).to(tensor.dtype)

        def columns(module: nn.Module, arguments: Any, zxbcdt: Tensor) -> Tensor:
            del module, arguments
            widths = [mixer.intermediate_size, mixer.conv_dim, mixer.num_heads]
            parts = zip(("z", "xBC", "dt"), zxbcdt.split(widths, dim=-1), strict=True)
            return torch.cat([tap(f"in_proj.{name}", part) for name, part in parts], dim=-1)

        def scan(module: nn.Module, arguments: Any) -> Any:
            del module
            y, *gate = arguments
            return (tap("scan", y), *gate)

        with ExitStack() as hooks:
            hooks.callback(mixer.in_proj.register_forward_hook(columns).remove)
            hooks.callback(mixer.norm.register_forward_pre_hook(scan).remove)
            for name in ("norm", "out_proj"):
                part = getattr(mixer, name)
                hooks.callback(
                    part.register_forward_hook(lambda _, __, out, name=name: tap(name, out)).remove
                )
            out = mixer(inputs["u"])
        return {"out": out, **self._final_states(inputs["u"])}

    @torch.no_grad()
    def _final_states(self, u: Tensor) -> dict[str, Tensor]:
        """Read the cache that another pass leaves; of the convolution's columns it has one more."""
        mixer: Any = self.model
        cache = DynamicCache(config=self._config)
        mixer(u, cache=cache)
        dtype = mixer.A_log.dtype
        return {
            "final.conv_state": cache.get_conv_state(0, state_idx=0)[..., 1:].to(dtype),
            "final.ssm_state": cache.get_recurrent_state(0, state_idx=0).to(dtype),
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Let transformers tell errors alone."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
