//! Intermediates by name, native until they are read, and what Python feeds in their place.

use candle_core::{DType, Tensor};
use indexmap::IndexMap;
use mamba2::{Fed, Feed};
use pyo3::prelude::*;

use crate::arrays::{to_array, to_tensor};

/// Intermediates of a forward pass, or their gradients; `mamba2_bridge.Intermediates` wraps it as a mapping.
#[pyclass(frozen)]
pub struct Intermediates {
    tensors: IndexMap<String, Tensor>,
}

impl Intermediates {
    pub fn new(tensors: IndexMap<String, Tensor>) -> Self {
        Self { tensors }
    }
}

#[pymethods]
impl Intermediates {
    /// Names and shapes, in forward order.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.dims().to_vec())).collect()
    }

    /// A copy of one tensor, None where there is none of this name.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.tensors.get(name).map(|tensor| to_array(py, tensor)).transpose()
    }
}

/// What is fed to one tap, as Python's files pass it: name, value, gradient.
pub type FedArrays<'py> = (String, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// The core's feed.
pub fn to_feed(feed: Vec<FedArrays<'_>>, dtype: DType) -> PyResult<Feed> {
    let convert = |(name, value, gradient): FedArrays<'_>| {
        let value = to_tensor(&format!("the value fed to {name}"), &value, dtype)?;
        let convert = |gradient| to_tensor(&format!("the gradient fed to {name}"), &gradient, dtype);
        let gradient = gradient.map(convert).transpose()?;
        Ok((name, Fed { value, gradient }))
    };
    feed.into_iter().map(convert).collect()
}
