//! The gate and the grouped RMS norm after the scan (docs/mamba2.md, step 5).

use candle_core::{D, Tensor};

use crate::config::Mamba2Config;
use crate::dims::Dims;
use crate::error::Result;

/// `y` and the gate `z` (batch, seqlen, `d_ssm`) -> the same shape. state-spaces' `RMSNormGated`.
pub(super) fn gated_norm(
    config: &Mamba2Config,
    dims: &Dims,
    y: &Tensor,
    z: &Tensor,
    weight: Option<&Tensor>,
) -> Result<Tensor> {
    let gate = z.silu()?;
    let Some(weight) = weight else { return Ok(y.mul(&gate)?) };
    if config.norm_before_gate {
        Ok(rms_norm(y, weight, dims.norm_groups, config.norm_eps)?.mul(&gate)?)
    } else {
        rms_norm(&y.mul(&gate)?, weight, dims.norm_groups, config.norm_eps)
    }
}

/// `x / sqrt(mean(x²) + eps) * weight`, the mean over each of `groups` equal parts of the last dimension.
///
/// Candle's own `rms_norm` has no backward and no f64.
pub fn rms_norm(x: &Tensor, weight: &Tensor, groups: usize, eps: f64) -> Result<Tensor> {
    let (batch, seqlen, width) = x.dims3()?;
    let grouped = x.reshape((batch, seqlen, groups, width / groups))?;
    let root = (grouped.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    Ok(grouped.broadcast_div(&root)?.reshape((batch, seqlen, width))?.broadcast_mul(weight)?)
}
