"""The state space model itself: as the recurrence that defines it, and in its chunked form.

Both are pure functions with the signature of the paper's listing 1 and compute, for every head,

    S_t = exp(dt_t A) S_{t-1} + dt_t x_t ⊗ B_t,    y_t = S_t C_t + D x_t.

Everything is computed in the dtype of the inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ssd_recurrence(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scan one token after the other (paper, equation 2 with the discretisation of section 2.1).

    Counterpart in state-spaces: ``selective_state_update``, in a loop.

    Parameters
    ----------
    x
        Inputs, (batch, seqlen, nheads, headdim).
    dt
        Time steps, after softplus and clamp, (batch, seqlen, nheads).
    A
        Decay rates, negative, (nheads,).
    B, C
        Input and output matrices, (batch, seqlen, ngroups, d_state). Head h reads group ``h // (nheads //
        ngroups)``.
    D
        Skip weights, (nheads,) or (nheads, headdim); None: no skip.
    initial_state
        State before the first token, (batch, nheads, headdim, d_state); None: zeros.

    Returns
    -------
    y : Tensor
        (batch, seqlen, nheads, headdim).
    final_state : Tensor
        State after the last token, (batch, nheads, headdim, d_state).

    Raises
    ------
    ValueError
        A shape that does not fit the others.
    """
    state = _check_and_start(x, dt, A, B, C, D, initial_state)
    B, C = _per_head(B, x), _per_head(C, x)
    decay = torch.exp(dt * A)  # (b, l, h)
    dt_x = dt.unsqueeze(-1) * x  # (b, l, h, p)
    outputs = []
    # unbind, not indexing: its backward stacks once, that of x[:, t] fills (b, l, h, p) for every token
    for decay_t, dt_x_t, B_t, C_t in zip(
        decay.unbind(1), dt_x.unbind(1), B.unbind(1), C.unbind(1), strict=True
    ):
        state = decay_t[..., None, None] * state + dt_x_t.unsqueeze(-1) * B_t.unsqueeze(-2)  # (b, h, p, n)
        outputs.append((state * C_t.unsqueeze(-2)).sum(-1))  # (b, h, p)
    y = torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x)
    return _with_skip(y, x, D), state


def ssd_chunked(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    initial_state: Tensor | None = None,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """Scan chunk by chunk: attention within one, the recurrence between them (paper, section 6, listing 1).

    The same function as `ssd_recurrence`, with the same parameters, returns and errors. Counterpart in
    state-spaces: ``ssd_minimal_discrete``; unlike it, the decay from a token to the end of its chunk is a sum
    of its own and not a difference of two cumulative sums, and the last chunk may be shorter.

    Parameters
    ----------
    chunk_size
        Tokens in a chunk, at least 1. It changes the order of additions, not the function.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    state = _check_and_start(x, dt, A, B, C, D, initial_state)
    B, C = _per_head(B, x), _per_head(C, x)
    log_decay = dt * A  # (b, l, h)
    dt_x = dt.unsqueeze(-1) * x  # (b, l, h, p)
    outputs = []
    chunks = (torch.split(tensor, chunk_size, dim=1) for tensor in (log_decay, dt_x, B, C))
    for log_decay_c, dt_x_c, B_c, C_c in zip(*chunks, strict=True):
        if log_decay_c.shape[1] == 0:  # split gives one empty chunk of an empty sequence
            break
        a = log_decay_c.transpose(1, 2)  # (b, h, q)
        log_decays = segment_sums(a)  # (b, h, q, q)
        scores = torch.einsum("bihn,bjhn->bhij", C_c, B_c) * torch.exp(log_decays)
        within = torch.einsum("bhij,bjhp->bihp", scores, dt_x_c)
        from_start = torch.exp(a.cumsum(-1))  # (b, h, q): decay from before the chunk to its token i
        before = torch.einsum("bihn,bhpn,bhi->bihp", C_c, state, from_start)
        outputs.append(within + before)
        to_end = torch.exp(log_decays[..., -1, :])  # (b, h, q): decay from token j to the end of the chunk
        chunk_state = torch.einsum("bjhp,bjhn,bhj->bhpn", dt_x_c, B_c, to_end)
        state = torch.exp(a.sum(-1))[..., None, None] * state + chunk_state
    y = torch.cat(outputs, dim=1) if outputs else torch.zeros_like(x)
    return _with_skip(y, x, D), state


def segment_sums(a: Tensor) -> Tensor:
    """Sum over every segment: ``a`` (..., q) -> (..., q, q), (i, j) the sum over j < k <= i, -inf if i < j.

    Each segment is added up by itself. As a difference of cumulative sums it would lose its digits wherever
    it is short and the sum before it is long, and the gradient of A with them. Counterpart in state-spaces:
    ``segsum``.
    """
    q = a.shape[-1]
    ones = torch.ones(q, q, dtype=torch.bool, device=a.device)
    columns = a.unsqueeze(-1).expand(*a.shape, q)  # (..., k, j)
    sums = columns.masked_fill(~ones.tril(-1), 0).cumsum(-2)  # (..., i, j)
    return sums.masked_fill(
        ~ones.tril(), -torch.inf
    )  # before the exponential: masked after it, gradients could be NaN


def _per_head(matrix: Tensor, x: Tensor) -> Tensor:
    """Give every head its group's matrix: (b, l, g, n) -> (b, l, h, n)."""
    return matrix.repeat_interleave(x.shape[2] // matrix.shape[2], dim=2)


def _with_skip(y: Tensor, x: Tensor, D: Tensor | None) -> Tensor:
    """Add ``D x``: D (h,) or (h, p), y and x (b, l, h, p)."""
    if D is None:
        return y
    return y + (D if D.ndim == 2 else D.unsqueeze(-1)) * x


def _check_and_start(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, initial_state: Tensor | None
) -> Tensor:
    """Refuse shapes that broadcasting would hide; return the state before the first token."""
    if x.ndim != 4 or B.ndim != 4:
        raise ValueError(
            "x must be (batch, seqlen, nheads, headdim) and B (batch, seqlen, ngroups, d_state), "
            f"got {tuple(x.shape)} and {tuple(B.shape)}"
        )
    batch, seqlen, nheads, headdim = x.shape
    ngroups, d_state = B.shape[2:]
    if ngroups == 0 or nheads % ngroups != 0:
        raise ValueError(f"ngroups must divide nheads={nheads}, got {ngroups}")
    state = x.new_zeros(batch, nheads, headdim, d_state) if initial_state is None else initial_state
    expected = {
        "dt": (dt, (batch, seqlen, nheads)),
        "A": (A, (nheads,)),
        "B": (B, (batch, seqlen, ngroups, d_state)),
        "C": (C, (batch, seqlen, ngroups, d_state)),
        "initial_state": (state, (batch, nheads, headdim, d_state)),
    }
    if D is not None:
        expected["D"] = (D, (nheads, headdim) if D.ndim == 2 else (nheads,))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
        if tensor.dtype != x.dtype:
            raise ValueError(f"{name} must have the dtype of x, {x.dtype}, got {tensor.dtype}")
    return state
