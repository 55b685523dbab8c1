//! The scan in its chunked form, state space duality (paper, section 6; docs/mamba2.md, "Chunked").

use candle_core::{D, Tensor};

use super::carry::carry;
use crate::error::Result;
use crate::interrupt;
use crate::ops::{clamp, matmul, prefix_decay, segment_decay, suffix_decay};

/// `S_t = exp(dt_t·A)·S_{t−1} + dt_t·x_t ⊗ B_t`, `y_t = S_t·C_t + D ⊙ x_t`.
///
/// x (batch, seqlen, nheads, headdim), dt (batch, seqlen, nheads) after softplus, a (nheads), b and c (batch, seqlen,
/// ngroups, `d_state`), d (nheads) or (nheads, headdim) or none, state (batch, nheads, headdim, `d_state`) -> y like x and
/// the state after the last token. seqlen and batch are at least 1. Differentiable in every tensor.
///
/// `chunk_size` steers speed and memory only. Blocks are at least [`MIN_BLOCK`] tokens where the sequence has them: the
/// states between blocks would fill the memory otherwise.
#[allow(clippy::too_many_arguments)] // the operation's own arguments, in the paper's letters
pub fn ssd(
    x: &Tensor,
    dt: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    d: Option<&Tensor>,
    state: &Tensor,
    chunk_size: usize,
) -> Result<(Tensor, Tensor)> {
    let (batch, seqlen, h, p) = x.dims4()?;
    let (_, _, g, n) = b.dims4()?;
    let per_group = h / g;
    let nchunks = seqlen.div_ceil(chunk_size.max(MIN_BLOCK));
    let t = seqlen.div_ceil(nchunks);
    let rows = batch * nchunks;

    // A padded token has dt = 0: it neither decays the state nor adds to it.
    let pad = |tensor: &Tensor| tensor.pad_with_zeros(1, 0, nchunks * t - seqlen);
    let xdt = x.broadcast_mul(&dt.unsqueeze(D::Minus1)?)?;
    // To (chunks, heads, t, p): heads in front, so that each head's block is a matrix.
    let xdt = pad(&xdt)?.reshape((rows, t, h, p))?.transpose(1, 2)?.contiguous()?;
    let b = pad(b)?.reshape((rows, t, g, n))?.transpose(1, 2)?.contiguous()?;
    let c = pad(c)?.reshape((rows, t, g, n))?.transpose(1, 2)?.contiguous()?;
    // Below the bound exp is zero: it keeps products with masks finite where A overflows.
    let log_decay = clamp(&dt.broadcast_mul(a)?, LOG_ZERO, f64::INFINITY)?;
    let log_decay = pad(&log_decay)?.reshape((rows, t, h))?.transpose(1, 2)?.contiguous()?;

    // decay[i, j] leads from token j to token i, from_start[i] from before the chunk to i, to_end[i] from i to its end.
    let log_decay = log_decay.reshape((rows * h, t))?;
    let decay = segment_decay(&log_decay)?; // (rows * h, t, t)
    let to_end = suffix_decay(&log_decay)?.reshape((rows, h, t, 1))?;
    let from_start = prefix_decay(&log_decay)?.reshape((rows, h, t, 1))?;
    interrupt::check()?;

    // Inside a chunk: Y = (C·Bᵀ ∘ decay)·(dt·x). The heads of a group share C·Bᵀ.
    let cb = matmul(&c, &b.transpose(2, 3)?)?.reshape((rows, g, 1, t, t))?;
    let weights = decay.reshape((rows, g, per_group, t, t))?.broadcast_mul(&cb)?;
    let inside = matmul(&weights.reshape((rows * h, t, t))?, &xdt.reshape((rows * h, t, p))?)?;

    // What each chunk adds to the state: Bᵀ·(decay to its end · dt·x), as (n, p) for each head.
    let weighted = heads_last(&xdt.broadcast_mul(&to_end)?, g)?; // (rows, g, t, per_group * p)
    let added = matmul(&b.transpose(2, 3)?.contiguous()?, &weighted)?; // (rows, g, n, per_group * p)
    let added = added
        .reshape(vec![batch, nchunks, g, n, per_group, p])?
        .permute(vec![0, 2, 4, 1, 3, 5])?
        .contiguous()?
        .reshape((batch * h, nchunks, n * p))?;
    let initial = state.transpose(2, 3)?.contiguous()?.reshape((batch * h, 1, n * p))?;
    let total = log_decay.reshape((batch, nchunks, h, t))?.sum(D::Minus1)?; // (batch, nchunks, h)
    let total = total.transpose(1, 2)?.contiguous()?.reshape((batch * h, nchunks))?;
    let (before, last) = carry(&total, &added, &initial)?;
    interrupt::check()?;

    // What comes from before the chunk: decay from its start · C·S.
    let before = before
        .reshape(vec![batch, g, per_group, nchunks, n, p])?
        .permute(vec![0, 3, 1, 4, 2, 5])?
        .contiguous()?
        .reshape((rows, g, n, per_group * p))?;
    let outside = matmul(&c, &before)?.reshape((rows, g, t, per_group, p))?.transpose(2, 3)?.contiguous()?;
    let outside = outside.reshape((rows, h, t, p))?.broadcast_mul(&from_start)?;

    let y = (inside.reshape((rows, h, t, p))? + outside)?;
    let y = y.transpose(1, 2)?.contiguous()?.reshape((batch, nchunks * t, h, p))?.narrow(1, 0, seqlen)?;
    let y = match d {
        None => y,
        Some(d) if d.rank() == 1 => (y + x.broadcast_mul(&d.unsqueeze(1)?)?)?,
        Some(d) => (y + x.broadcast_mul(d)?)?,
    };
    let last = last.reshape((batch, h, n, p))?.transpose(2, 3)?.contiguous()?;
    Ok((y, last))
}

/// The logarithm of a decay that is zero in every element type.
const LOG_ZERO: f64 = -1e4;

/// The smallest block that the scan takes.
pub const MIN_BLOCK: usize = 16;

/// (rows, heads, t, p) -> (rows, groups, t, heads of a group · p).
fn heads_last(x: &Tensor, g: usize) -> Result<Tensor> {
    let (rows, h, t, p) = x.dims4()?;
    Ok(x.reshape((rows, g, h / g, t, p))?.transpose(2, 3)?.contiguous()?.reshape((rows, g, t, h / g * p))?)
}
