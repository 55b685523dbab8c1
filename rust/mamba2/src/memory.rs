//! Allocation that fails with an error where a plain one would abort the process.

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, Result};

/// An empty vector with room for `elements` numbers; `what` names them in the error.
pub fn reserve<T>(elements: usize, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(elements).map_err(|_| Error::OutOfMemory { what: what.into(), elements })?;
    Ok(values)
}

/// A tensor of zeros.
pub(crate) fn zeros(what: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size)).unwrap_or(usize::MAX);
    if device.is_cpu() {
        drop(reserve::<f64>(elements, what)?);
    }
    Ok(Tensor::zeros(shape, dtype, device)?)
}
