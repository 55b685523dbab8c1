"""The mixer: projection, convolution, state space model, gated norm, projection (paper, section 7)."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mamba2_bridge.torch.reference.norm import GatedRMSNorm
from mamba2_bridge.torch.reference.scan import ssd_chunked, ssd_recurrence
from mamba2_bridge.torch.reference.tap import Tapped

Scan = Literal["recurrence", "chunked"]


class State(NamedTuple):
    """What a mixer remembers between calls.

    Attributes
    ----------
    conv_state
        The raw (pre-convolution) xBC columns before the next token, oldest first, (batch, conv_dim, d_conv -
        1).
    ssm_state
        The state space model's state after the last token, (batch, nheads, headdim, d_state).
    """

    conv_state: Tensor
    ssm_state: Tensor


class Mamba2(Tapped):
    """One mixer, (batch, seqlen, d_model) -> (batch, seqlen, d_model); state-spaces' ``Mamba2``.

    Parameters
    ----------
    d_model, d_state, d_conv, expand, headdim, d_ssm, ngroups
        Sizes, see the package's words. ``d_ssm=None``: all of d_inner.
    norm_groups
        Groups of the gated norm; None: ngroups.
    A_init_range, conv_init, dt_min, dt_max, dt_init_floor
        Initial values: -A uniform in the range, convolution weights uniform in ±conv_init (None: PyTorch's
        default), time steps log-uniform between dt_min and dt_max.
    D_has_hdim
        One skip weight a channel instead of one a head.
    rmsnorm, norm_before_gate, norm_eps
        The gated norm: whether there is one (else only the gate), its order, its eps.
    dt_limit
        Bounds that the time step is clamped to, after softplus.
    bias, conv_bias
        Whether the projections and the convolution have biases.
    chunk_size
        Tokens in a chunk of the chunked scan.
    scan
        ``"recurrence"``, the definition, or ``"chunked"``, the same function faster. A plain attribute: may
        be set later.
    device, dtype
        Of the parameters. All computation is in this dtype.

    Raises
    ------
    ValueError
        Sizes that don't divide, or an unknown scan.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        expand: int = 2,
        headdim: int = 64,
        d_ssm: int | None = None,
        ngroups: int = 1,
        norm_groups: int | None = None,
        A_init_range: tuple[float, float] = (1, 16),
        conv_init: float | None = None,
        D_has_hdim: bool = False,
        rmsnorm: bool = True,
        norm_before_gate: bool = False,
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
        dt_init_floor: float = 1e-4,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        bias: bool = False,
        conv_bias: bool = True,
        norm_eps: float = 1e-5,
        chunk_size: int = 256,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        scan: Scan = "recurrence",
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.d_model, self.d_state, self.d_conv, self.headdim, self.ngroups = (
            d_model,
            d_state,
            d_conv,
            headdim,
            ngroups,
        )
        self.d_inner = expand * d_model
        self.d_ssm = self.d_inner if d_ssm is None else d_ssm
        _must_divide("headdim", headdim, "d_ssm", self.d_ssm)
        self.nheads = self.d_ssm // headdim
        _must_divide("ngroups", ngroups, "nheads", self.nheads)
        norm_groups = ngroups if norm_groups is None else norm_groups
        _must_divide("norm_groups", norm_groups, "d_ssm", self.d_ssm)
        if not 0 < self.d_ssm <= self.d_inner:
            raise ValueError(f"d_ssm must be between 1 and d_inner={self.d_inner}, got {self.d_ssm}")
        self.d_mlp = self.d_inner - self.d_ssm
        self.conv_dim = self.d_ssm + 2 * ngroups * d_state
        self.D_has_hdim = D_has_hdim
        self.dt_limit = dt_limit
        self.chunk_size = chunk_size
        self.scan = scan

        d_in_proj = 2 * self.d_inner + 2 * ngroups * d_state + self.nheads
        self.in_proj = nn.Linear(d_model, d_in_proj, bias=bias, **factory)
        self.conv1d = nn.Conv1d(
            self.conv_dim, self.conv_dim, d_conv, groups=self.conv_dim, bias=conv_bias, **factory
        )
        if conv_init is not None:
            nn.init.uniform_(self.conv1d.weight, -conv_init, conv_init)
        dt = torch.exp(torch.empty(self.nheads, **factory).uniform_(math.log(dt_min), math.log(dt_max)))
        dt = dt.clamp(min=dt_init_floor)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
        self.A_log = nn.Parameter(torch.log(torch.empty(self.nheads, **factory).uniform_(*A_init_range)))
        self.D = nn.Parameter(torch.ones(self.d_ssm if D_has_hdim else self.nheads, **factory))
        self.norm = (
            GatedRMSNorm(self.d_ssm, norm_groups, norm_eps, norm_before_gate, **factory) if rmsnorm else None
        )
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **factory)

    def init_state(self, batch: int) -> State:
        """Zeros for ``batch`` sequences, in the parameters' dtype and on their device."""
        zeros = self.A_log.new_zeros
        return State(
            zeros(batch, self.conv_dim, self.d_conv - 1),
            zeros(batch, self.nheads, self.headdim, self.d_state),
        )

    @overload
    def forward(
        self, u: Tensor, state: State | None = None, return_state: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def forward(
        self, u: Tensor, state: State | None, return_state: Literal[True]
    ) -> tuple[Tensor, State]: ...
    @overload
    def forward(
        self, u: Tensor, state: State | None = None, *, return_state: Literal[True]
    ) -> tuple[Tensor, State]: ...
    def forward(
        self, u: Tensor, state: State | None = None, return_state: bool = False
    ) -> Tensor | tuple[Tensor, State]:
        """Mix a sequence, from zero states or from those that an earlier call left.

        Parameters
        ----------
        u
            (batch, seqlen, d_model); seqlen 0 and batch 0 are allowed.
        state
            State before the first token; None: zeros. Gradients flow to it.
        return_state
            Whether to return the state after the last token too.

        Returns
        -------
        Tensor or tuple of Tensor and State
            Output (batch, seqlen, d_model), and the state where asked for.

        Raises
        ------
        ValueError
            ``u`` or a state of a wrong shape or dtype, or an unknown scan.
        """
        state = self._checked(u, state)
        batch, seqlen, _ = u.shape
        zxbcdt = self.in_proj(u)  # (b, l, d_in_proj)
        widths = [self.d_mlp, self.d_mlp, self.d_ssm, self.conv_dim, self.nheads]
        z0, x0, z, xBC, dt = torch.split(zxbcdt, widths, dim=-1)
        if self.d_mlp > 0:
            z0, x0 = self.tap("in_proj.mlp", torch.cat([z0, x0], dim=-1)).chunk(2, dim=-1)
        z, xBC, dt = self.tap("in_proj.z", z), self.tap("in_proj.xBC", xBC), self.tap("in_proj.dt", dt)
        xBC, conv_state = self._convolve(xBC, state.conv_state)
        xBC = self.tap("conv", xBC)
        d_bc = self.ngroups * self.d_state
        x, B, C = torch.split(xBC, [self.d_ssm, d_bc, d_bc], dim=-1)
        dt = self.tap("dt", self._step_size(dt))  # (b, l, h)
        y, ssm_state = self._scan(
            x.reshape(batch, seqlen, self.nheads, self.headdim),
            dt,
            -torch.exp(self.A_log),
            B.reshape(batch, seqlen, self.ngroups, self.d_state),
            C.reshape(batch, seqlen, self.ngroups, self.d_state),
            self.D.view(self.nheads, self.headdim) if self.D_has_hdim else self.D,
            state.ssm_state,
        )
        y = self.tap("scan", y.flatten(-2))  # (b, l, d_ssm)
        y = self.tap("norm", y * F.silu(z) if self.norm is None else self.norm(y, z))
        if self.d_mlp > 0:
            y = torch.cat([self.tap("mlp", F.silu(z0) * x0), y], dim=-1)  # (b, l, d_inner)
        out = self.tap("out_proj", self.out_proj(y))
        return (out, State(conv_state, ssm_state)) if return_state else out

    def step(self, u_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Mix one token, ``u_t`` (batch, d_model): the next token of a longer forward, in every option."""
        out, state = self.forward(u_t.unsqueeze(1), state, return_state=True)
        return out.squeeze(1), state

    def _convolve(self, xBC: Tensor, conv_state: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve (b, l, conv_dim), apply SiLU; also return the columns that the next token will need.

        Causal and depthwise, ``sum_k w_k x_{t - d_conv + 1 + k}``: no flip, and no least length.
        """
        seqlen = xBC.shape[1]
        columns = torch.cat([conv_state, xBC.transpose(1, 2)], dim=-1)  # (b, conv_dim, d_conv - 1 + l)
        taps = self.conv1d.weight.squeeze(1).unsqueeze(-1).unbind(1)  # d_conv of (conv_dim, 1)
        y = taps[0] * columns[..., :seqlen]
        for k, tap in enumerate(taps[1:], start=1):
            y = y + tap * columns[..., k : k + seqlen]
        if self.conv1d.bias is not None:
            y = y + self.conv1d.bias.unsqueeze(-1)
        return F.silu(y).transpose(1, 2), columns[..., seqlen:]

    def _step_size(self, dt: Tensor) -> Tensor:
        """Bias, softplus and clamp, (b, l, h)."""
        return _clamp(F.softplus(dt + self.dt_bias), *self.dt_limit)

    def _scan(
        self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.scan == "recurrence":
            return ssd_recurrence(x, dt, A, B, C, D, state)
        if self.scan == "chunked":
            return ssd_chunked(x, dt, A, B, C, D, state, chunk_size=self.chunk_size)
        raise ValueError(f"scan must be 'recurrence' or 'chunked', got {self.scan!r}")

    def _checked(self, u: Tensor, state: State | None) -> State:
        """Refuse what broadcasting and promotion would hide; return the state to start from."""
        if u.ndim != 3 or u.shape[-1] != self.d_model:
            raise ValueError(
                f"u must have shape (batch, seqlen, d_model={self.d_model}), got {tuple(u.shape)}"
            )
        dtype = self.A_log.dtype
        if u.dtype != dtype:
            raise ValueError(f"u must have the model's dtype, {dtype}, got {u.dtype}")
        zeros = self.init_state(u.shape[0])
        if state is None:
            return zeros
        for name, tensor, zero in zip(State._fields, state, zeros, strict=True):
            if tensor.shape != zero.shape or tensor.dtype != dtype:
                raise ValueError(
                    f"{name} must be {dtype} of shape {tuple(zero.shape)}, "
                    f"got {tensor.dtype} of {tuple(tensor.shape)}"
                )
        return state


def _clamp(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp with gradient 1 at and inside the bounds, 0 outside.

    Spelled out since `torch.clamp` has changed: at a bound its gradient was 1, and is 0 in newer releases.
    """
    return torch.where((x >= low) & (x <= high), x, x.detach().clamp(low, high))


def _must_divide(name: str, value: int, of_name: str, of: int) -> None:
    if value < 1 or of % value != 0:
        raise ValueError(f"{name} must divide {of_name}={of}, got {value}")
