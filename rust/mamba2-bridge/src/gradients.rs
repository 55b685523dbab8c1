//! Gradients that stay native until they are read.

use std::sync::Arc;

use candle_core::Tensor;
use indexmap::IndexMap;
use parking_lot::RwLock;
use pyo3::prelude::*;

use crate::arrays::to_array;
use crate::named::NamedTensors;
use crate::runtime::{complete, compute, read, write};
use crate::state::{Mamba2State, wrap};

/// Gradients by name; `mamba2_bridge.Gradients` wraps it as a mapping.
#[pyclass(frozen)]
pub struct Gradients {
    pub inner: Arc<RwLock<mamba2::Gradients>>,
    intermediates: IndexMap<String, Tensor>,
}

impl Gradients {
    pub fn new(inner: mamba2::Gradients, intermediates: IndexMap<String, Tensor>) -> Self {
        Self { inner: Arc::new(RwLock::new(inner)), intermediates }
    }
}

#[pymethods]
impl Gradients {
    /// The parameters' names in the model's order.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(read(py, &self.inner)?.iter().map(|(name, _)| name.to_owned()).collect())
    }

    /// A copy of one gradient, None where there is none of this name.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        read(py, &self.inner)?.get(name).map(|grad| to_array(py, grad)).transpose()
    }

    /// A copy of the gradient to the input.
    #[getter]
    fn input<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, &read(py, &self.inner)?.input)
    }

    /// The gradients to the initial states, None where none were given.
    #[getter]
    fn states(&self, py: Python<'_>) -> PyResult<Option<Vec<Mamba2State>>> {
        Ok(read(py, &self.inner)?.states.as_deref().map(wrap))
    }

    /// The gradients to the intermediates that were recorded and reached.
    #[getter]
    fn intermediates(&self) -> NamedTensors {
        NamedTensors::new(self.intermediates.clone())
    }

    /// Adds another backward's gradients.
    fn add(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let more = read(py, &other.inner)?.clone();
        let mut sum = write(py, &self.inner)?;
        complete(py, move || sum.add(&more))
    }

    /// Multiplies all gradients.
    fn scale(&self, py: Python<'_>, factor: f64) -> PyResult<()> {
        let mut grads = write(py, &self.inner)?;
        complete(py, move || grads.scale(factor))
    }

    /// Euclidean norms by name.
    fn norms(&self, py: Python<'_>) -> PyResult<IndexMap<String, f64>> {
        let grads = read(py, &self.inner)?;
        compute(py, move || grads.norms())
    }
}
