//! Tensors by name, native until they are read.

use candle_core::Tensor;
use indexmap::IndexMap;
use pyo3::prelude::*;

use crate::arrays::to_array;

/// Intermediates of a forward pass, gradients to them, or an optimizer's moments; `mamba2_bridge.NamedArrays` wraps it.
#[pyclass(frozen)]
pub struct NamedTensors {
    tensors: IndexMap<String, Tensor>,
}

impl NamedTensors {
    pub fn new(tensors: IndexMap<String, Tensor>) -> Self {
        Self { tensors }
    }
}

#[pymethods]
impl NamedTensors {
    /// Names and shapes, in order.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.dims().to_vec())).collect()
    }

    /// A copy of one tensor, None where there is none of this name.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.tensors.get(name).map(|tensor| to_array(py, tensor)).transpose()
    }
}
