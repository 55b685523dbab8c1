//! What a mixer remembers between calls.

use candle_core::{DType, Device, Tensor};

use crate::dims::Dims;
use crate::error::{Error, Result};
use crate::memory::{on_device, zeros};

/// State of a mixer after its last token, and likewise the gradient to such a state.
#[derive(Debug, Clone)]
pub struct State {
    /// (batch, `conv_dim`, `d_conv` − 1): the raw (x, B, C) columns before the next token, oldest first.
    pub conv: Tensor,
    /// (batch, nheads, headdim, `d_state`).
    pub ssm: Tensor,
}

impl State {
    /// The state before the first token.
    pub fn zeros(dims: &Dims, batch: usize, dtype: DType, device: &Device) -> Result<Self> {
        let conv = zeros("conv_state", &dims.conv_state_shape(batch), dtype, device)?;
        let ssm = zeros("ssm_state", &dims.ssm_state_shape(batch), dtype, device)?;
        Ok(Self { conv, ssm })
    }

    /// Checks element type and shapes for a batch of `batch`; `what` names the state in the error.
    pub fn check(&self, what: &str, dims: &Dims, batch: usize, dtype: DType) -> Result<()> {
        let [_, conv_dim, history] = dims.conv_state_shape(batch);
        let [_, nheads, headdim, d_state] = dims.ssm_state_shape(batch);
        let expected_conv = format!("(batch={batch}, conv_dim={conv_dim}, d_conv-1={history})");
        let expected_ssm = format!("(batch={batch}, nheads={nheads}, headdim={headdim}, d_state={d_state})");
        let conv = ("conv_state", &self.conv, dims.conv_state_shape(batch).to_vec(), expected_conv);
        let ssm = ("ssm_state", &self.ssm, dims.ssm_state_shape(batch).to_vec(), expected_ssm);
        for (part, tensor, _, _) in [&conv, &ssm] {
            check_dtype(&format!("{what}.{part}"), tensor, dtype)?;
        }
        for (part, tensor, shape, expected) in [&conv, &ssm] {
            if tensor.dims() != shape {
                return Err(Error::shape(format!("{what}.{part}"), expected, tensor.dims()));
            }
        }
        Ok(())
    }

    /// The same state on another device; itself where it is there.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self { conv: on_device(&self.conv, device)?, ssm: on_device(&self.ssm, device)? })
    }

    /// The same numbers without the graph that made them.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self { conv: self.conv.detach(), ssm: self.ssm.detach() }
    }
}

/// Refuses a tensor of another element type than `dtype`.
pub(crate) fn check_dtype(what: &str, tensor: &Tensor, dtype: DType) -> Result<()> {
    if tensor.dtype() == dtype {
        return Ok(());
    }
    let name = |dtype| crate::dtype_name(dtype).to_owned();
    Err(Error::DType { what: what.into(), expected: name(dtype), got: name(tensor.dtype()) })
}
