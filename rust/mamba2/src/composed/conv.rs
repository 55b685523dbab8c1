//! Causal depthwise convolution and SiLU (docs/mamba2.md, step 2).

use candle_core::{D, Tensor};

use crate::error::Result;

/// `xbc` (batch, seqlen, `conv_dim`), `history` (batch, `conv_dim`, `d_conv` − 1), `weight` (`conv_dim`, 1, `d_conv`),
/// `bias` (`conv_dim`) -> SiLU of the convolution (batch, seqlen, `conv_dim`) and the history after the last token.
///
/// Shifted multiply-adds: Candle's grouped conv1d is one convolution per group, and its kernel's gradient is wrong.
pub(super) fn conv_silu(
    xbc: &Tensor,
    history: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let (_, seqlen, conv_dim) = xbc.dims3()?;
    let d_conv = weight.dim(D::Minus1)?;
    let padded = if d_conv == 1 {
        xbc.contiguous()?
    } else {
        Tensor::cat(&[&history.transpose(1, 2)?.contiguous()?, &xbc.contiguous()?], 1)?
    };
    let tap = |k: usize| -> Result<Tensor> {
        let weight = weight.narrow(2, k, 1)?.reshape((1, 1, conv_dim))?;
        Ok(padded.narrow(1, k, seqlen)?.broadcast_mul(&weight)?)
    };
    let mut sum = tap(0)?;
    for k in 1..d_conv {
        sum = (sum + tap(k)?)?;
    }
    if let Some(bias) = bias {
        sum = sum.broadcast_add(bias)?;
    }
    let after = if d_conv == 1 {
        history.clone()
    } else {
        padded.narrow(1, seqlen, d_conv - 1)?.transpose(1, 2)?.contiguous()?
    };
    Ok((sum.silu()?, after))
}
