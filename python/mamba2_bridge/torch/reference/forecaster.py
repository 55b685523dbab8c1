"""The forecaster: a stack of residual mixers that predicts from the last timestep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from torch import Tensor, nn

from mamba2_bridge.torch.reference.mixer import Mamba2, State
from mamba2_bridge.torch.reference.norm import RMSNorm
from mamba2_bridge.torch.reference.tap import Tapped

if TYPE_CHECKING:
    from collections.abc import Sequence


class Block(Tapped):
    """``r + mixer(norm(r))`` (state-spaces' ``Block`` without its second branch)."""

    def __init__(self, **mixer: Any) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": mixer.get("device"), "dtype": mixer.get("dtype")}
        self.norm = RMSNorm(mixer["d_model"], mixer.get("norm_eps", 1e-5), **factory)
        self.mixer = Mamba2(**mixer)

    def forward(self, r: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Add the mixer's output to ``r`` (batch, seqlen, d_model); the mixer's state goes in and out."""
        out, state = self.mixer(self.tap("norm", self.norm(r)), state, return_state=True)
        return self.tap("", r + out), state


class Mamba2Forecaster(Tapped):
    """Sequence in, prediction from the last timestep out: (batch, seqlen, d_input) -> (batch, d_output).

    Parameters
    ----------
    d_input, d_output
        Width of an input row and of the prediction.
    n_layer
        Number of residual blocks, at least 1.
    **mixer
        Options of `Mamba2`, ``d_model`` among them. The block norms take its ``norm_eps``.

    Raises
    ------
    ValueError
        ``n_layer`` below 1, or wrong options of the mixer.
    """

    def __init__(self, d_input: int, d_output: int, n_layer: int, **mixer: Any) -> None:
        super().__init__()
        if n_layer < 1:
            raise ValueError(f"n_layer must be at least 1, got {n_layer}")
        factory: dict[str, Any] = {"device": mixer.get("device"), "dtype": mixer.get("dtype")}
        d_model = mixer["d_model"]
        self.d_input = d_input
        self.encoder = nn.Linear(d_input, d_model, **factory)
        self.layers = nn.ModuleList(Block(**mixer) for _ in range(n_layer))
        self.norm_f = RMSNorm(d_model, mixer.get("norm_eps", 1e-5), **factory)
        self.head = nn.Linear(d_model, d_output, **factory)

    @overload
    def forward(
        self, x: Tensor, states: Sequence[State] | None = None, return_states: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def forward(
        self, x: Tensor, states: Sequence[State] | None, return_states: Literal[True]
    ) -> tuple[Tensor, list[State]]: ...
    @overload
    def forward(
        self, x: Tensor, states: Sequence[State] | None = None, *, return_states: Literal[True]
    ) -> tuple[Tensor, list[State]]: ...
    def forward(
        self, x: Tensor, states: Sequence[State] | None = None, return_states: bool = False
    ) -> Tensor | tuple[Tensor, list[State]]:
        """Predict from the last timestep of ``x``.

        Parameters
        ----------
        x
            (batch, seqlen, d_input), seqlen at least 1.
        states
            One state a layer, before the first timestep; None: zeros.
        return_states
            Whether to return the states after the last timestep too.

        Returns
        -------
        Tensor or tuple of Tensor and list of State
            Prediction (batch, d_output), and the states where asked for.

        Raises
        ------
        ValueError
            A wrong shape or dtype, an empty sequence, or a wrong number of states.
        """
        if x.ndim != 3 or x.shape[1] == 0 or x.shape[2] != self.d_input:
            raise ValueError(
                f"x must have shape (batch, seqlen >= 1, d_input={self.d_input}), got {tuple(x.shape)}"
            )
        if states is not None and len(states) != len(self.layers):
            raise ValueError(
                f"states must hold one state for each of {len(self.layers)} layers, got {len(states)}"
            )
        r = self.tap("encoder", self.encoder(x))  # (b, l, d_model)
        final_states: list[State] = []
        for i, layer in enumerate(self.layers):
            r, state = layer(r, None if states is None else states[i])
            final_states.append(state)
        last = self.tap("norm_f", self.norm_f(r[:, -1]))
        out = self.tap("head", self.head(last))
        return (out, final_states) if return_states else out

    def init_states(self, batch: int) -> list[State]:
        """Zeros for ``batch`` sequences, one state a layer."""
        return [layer.mixer.init_state(batch) for layer in self.layers]  # type: ignore[union-attr, operator]

    def step(self, x_t: Tensor, states: Sequence[State]) -> tuple[Tensor, list[State]]:
        """Take one row ``x_t`` (batch, d_input), predict from it: the last timestep of a longer forward."""
        return self.forward(x_t.unsqueeze(1), states, return_states=True)
