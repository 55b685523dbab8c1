//! The mixer core in Candle's own differentiable operations: any device, and the readable reference of the kernels.

mod carry;
mod conv;
mod gated_norm;
mod ssd;

use candle_core::{DType, Tensor};

use crate::config::Mamba2Config;
use crate::dims::Dims;
use crate::error::Result;
use crate::interrupt;
use crate::ops;
use crate::state::State;
use crate::tap::Taps;

pub use gated_norm::rms_norm;
pub use ssd::{MIN_BLOCK, ssd};

/// The parameters between the two projections.
#[derive(Debug, Clone)]
pub struct CoreParams {
    /// (`conv_dim`, 1, `d_conv`).
    pub conv_weight: Tensor,
    /// (`conv_dim`).
    pub conv_bias: Option<Tensor>,
    /// (nheads).
    pub dt_bias: Tensor,
    /// (nheads).
    pub a_log: Tensor,
    /// (nheads), or (`d_ssm`) with `D_has_hdim`.
    pub d: Tensor,
    /// (`d_ssm`), with rmsnorm.
    pub norm_weight: Option<Tensor>,
}

/// Everything between the projections (docs/mamba2.md, steps 1 to 6).
///
/// `zxbcdt` (batch, seqlen, `d_in_proj`) with seqlen and batch at least 1 -> y (batch, seqlen, `d_inner`) and the state
/// after the last token. Differentiable in every tensor. Its taps: see [`crate::tap`].
pub fn mixer_core(
    config: &Mamba2Config,
    dims: &Dims,
    zxbcdt: &Tensor,
    params: &CoreParams,
    state: &State,
    taps: &Taps,
) -> Result<(Tensor, State)> {
    let (batch, seqlen, _) = zxbcdt.dims3()?;
    let Dims { d_ssm, d_mlp, nheads, headdim, ngroups, d_state, conv_dim, .. } = *dims;
    let bc = ngroups * d_state;

    let projected = taps.within("in_proj");
    let mlp = match d_mlp {
        0 => None,
        _ => Some(projected.at("mlp", zxbcdt.narrow(2, 0, 2 * d_mlp)?)?),
    };
    let z = projected.at("z", zxbcdt.narrow(2, 2 * d_mlp, d_ssm)?)?;
    let xbc = projected.at("xBC", zxbcdt.narrow(2, 2 * d_mlp + d_ssm, conv_dim)?)?;
    let dt = projected.at("dt", zxbcdt.narrow(2, 2 * d_mlp + d_ssm + conv_dim, nheads)?)?;

    let (xbc, conv_state) = conv::conv_silu(&xbc, &state.conv, &params.conv_weight, params.conv_bias.as_ref())?;
    let xbc = taps.at("conv", xbc)?;
    interrupt::check()?;

    // The norm may divide by a sum that nearly cancels: what the scan rounds would show in the output many times over.
    let (narrow, wide) = (zxbcdt.dtype(), scan_dtype(zxbcdt));
    let widen = |tensor: &Tensor| tensor.to_dtype(wide);
    let (xbc, z, dt) = (widen(&xbc)?, widen(&z)?, widen(&dt)?);
    let x = xbc.narrow(2, 0, d_ssm)?.reshape((batch, seqlen, nheads, headdim))?;
    let b = xbc.narrow(2, d_ssm, bc)?.reshape((batch, seqlen, ngroups, d_state))?;
    let c = xbc.narrow(2, d_ssm + bc, bc)?.reshape((batch, seqlen, ngroups, d_state))?;

    let dt = taps.at("dt", step_size(&dt.broadcast_add(&widen(&params.dt_bias)?)?, config.dt_limit)?)?;
    let a = widen(&params.a_log)?.exp()?.neg()?;
    let skip = widen(&params.d)?;
    let skip = if config.d_has_hdim { skip.reshape((nheads, headdim))? } else { skip };
    let (y, ssm_state) = ssd(&x, &dt, &a, &b, &c, Some(&skip), &widen(&state.ssm)?, config.chunk_size)?;
    interrupt::check()?;

    let y = taps.at("scan", y.reshape((batch, seqlen, d_ssm))?)?;
    let norm_weight = params.norm_weight.as_ref().map(widen).transpose()?;
    let y = gated_norm::gated_norm(config, dims, &y, &z, norm_weight.as_ref())?.to_dtype(narrow)?;
    let y = taps.at("norm", y)?;
    let y = match mlp {
        None => y,
        Some(mlp) => {
            let (z0, x0) = (mlp.narrow(2, 0, d_mlp)?, mlp.narrow(2, d_mlp, d_mlp)?);
            Tensor::cat(&[&taps.at("mlp", z0.silu()?.mul(&x0)?)?, &y], 2)?
        }
    };
    Ok((y, State { conv: conv_state, ssm: ssm_state.to_dtype(narrow)? }))
}

/// The element type between convolution and output projection: f64 on a CPU, elsewhere the input's own, since many devices
/// are far slower in f64.
fn scan_dtype(x: &Tensor) -> DType {
    if x.device().is_cpu() { DType::F64 } else { x.dtype() }
}

/// Δ = clamp(softplus(dt)) (docs/mamba2.md, step 3).
fn step_size(dt: &Tensor, (low, high): (f64, f64)) -> Result<Tensor> {
    let dt = ops::softplus(dt)?;
    // softplus is never negative: the default bounds change nothing.
    if (low, high) == (0.0, f64::INFINITY) { Ok(dt) } else { Ok(ops::clamp(&dt, low, high)?) }
}
