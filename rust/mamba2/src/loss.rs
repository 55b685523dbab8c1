//! Losses, reduced in f64 whatever the model's element type.

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};
use crate::state::check_dtype;

/// Mean of the squared differences over all elements: a scalar in f64, differentiable in `y`. NaN where there are none.
///
/// An f32 model's output is widened, so neither the sum nor its gradient is narrowed on the way.
pub fn mse(y: &Tensor, target: &Tensor) -> Result<Tensor> {
    check_dtype("target", target, y.dtype())?;
    if target.dims() != y.dims() {
        return Err(Error::shape("target", format!("{} as the output", crate::error::shape(y.dims())), target.dims()));
    }
    if y.elem_count() == 0 {
        return Ok(Tensor::new(f64::NAN, y.device())?);
    }
    let difference = y.to_dtype(DType::F64)?.sub(&target.to_device(y.device())?.to_dtype(DType::F64)?)?;
    Ok(difference.sqr()?.mean_all()?)
}
