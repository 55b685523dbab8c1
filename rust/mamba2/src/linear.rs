//! The linear layer of projections, encoder and head.

use candle_core::{D, Tensor};

use crate::error::Result;
use crate::ops;

/// `x·Wᵀ + b`.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
    /// On the CPU kernels rather than in Candle's operations.
    pub(crate) fused: bool,
}

impl Linear {
    /// weight (out, in), bias (out).
    pub(crate) fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias, fused: false }
    }

    /// x (…, in) -> (…, out). One matrix product over all leading dimensions: Candle's products of transposed or broadcast
    /// batches are wrong on a CPU.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.fused {
            return Ok(ops::linear(x, &self.weight, self.bias.as_ref())?);
        }
        let mut shape = x.dims().to_vec();
        let (rows, width) = (x.elem_count() / x.dim(D::Minus1)?, x.dim(D::Minus1)?);
        let y = ops::matmul(&x.contiguous()?.reshape((rows, width))?, &self.weight.t()?)?;
        if let Some(last) = shape.last_mut() {
            *last = self.weight.dim(0)?;
        }
        let y = y.reshape(shape)?;
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }
}
