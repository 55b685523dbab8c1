//! What a forward pass gives: output, states, and one backward.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use indexmap::IndexMap;
use mamba2::Recording;
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use crate::arrays::{to_array, to_tensor};
use crate::errors::{OrRaise, bridge_error};
use crate::gradients::Gradients;
use crate::named::NamedTensors;
use crate::runtime::{compute, free, read};
use crate::state::{Mamba2State, unwrap, wrap};

/// A graph that one backward consumes.
struct Graph {
    output: Mutex<Option<mamba2::Output>>,
    recording: Option<Recording>,
    model: Arc<RwLock<mamba2::Model>>,
}

impl Graph {
    fn take(&self, py: Python<'_>) -> PyResult<mamba2::Output> {
        let output = self.output.lock().take(); // not held where Python may run
        output.ok_or_else(|| gone(py))
    }

    /// What the one backward gives.
    fn gradients(&self, gradients: mamba2::Gradients) -> Gradients {
        let intermediates = self.recording.as_ref().map(Recording::gradients).unwrap_or_default();
        Gradients::new(gradients, intermediates)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(output) = self.output.get_mut().take() {
            free(output);
        }
    }
}

fn gone(py: Python<'_>) -> PyErr {
    let message = "backward was called on this output before and has freed its graph: run forward again";
    bridge_error(py, "GraphError", message)
}

/// Output and states of a forward pass; the package's output classes wrap it.
#[pyclass(frozen)]
pub struct Output {
    y: Tensor,
    states: Vec<mamba2::State>,
    graph: Arc<Graph>,
    dtype: DType,
}

impl Output {
    pub fn new(
        output: mamba2::Output,
        recording: Option<Recording>,
        model: Arc<RwLock<mamba2::Model>>,
        dtype: DType,
    ) -> Self {
        let states = output.states().iter().map(mamba2::State::detach).collect();
        let y = output.y().detach();
        Self { y, states, graph: Arc::new(Graph { output: Mutex::new(Some(output)), recording, model }), dtype }
    }
}

#[pymethods]
impl Output {
    /// A copy of the output.
    #[getter]
    fn y<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, &self.y)
    }

    /// The states after the last token.
    #[getter]
    fn states(&self) -> Vec<Mamba2State> {
        wrap(&self.states)
    }

    /// The intermediates that were recorded.
    #[getter]
    fn intermediates(&self) -> NamedTensors {
        let recording = self.graph.recording.as_ref();
        NamedTensors::new(recording.map_or_else(IndexMap::new, Recording::values))
    }

    /// Vector-Jacobian product.
    #[pyo3(signature = (dy, dstates=None))]
    fn backward(&self, dy: &Bound<'_, PyAny>, dstates: Option<Vec<PyRef<'_, Mamba2State>>>) -> PyResult<Gradients> {
        let py = dy.py();
        let (dy, dstates) = (to_tensor("dy", dy, self.dtype)?, unwrap(dstates));
        let model = read(py, &self.graph.model)?;
        // Upstream gradients that don't fit leave the graph for another try.
        let check = |output: &mamba2::Output| output.check_upstream(&model, &dy, dstates.as_deref());
        let fits = self.graph.output.lock().as_ref().map(check);
        fits.ok_or_else(|| gone(py))?.or_raise(py)?;
        let output = self.graph.take(py)?;
        let gradients = compute(py, move || output.backward(&model, &dy, dstates.as_deref()))?;
        Ok(self.graph.gradients(gradients))
    }

    /// Mean squared error against `target`.
    fn mse_loss(&self, target: &Bound<'_, PyAny>) -> PyResult<Loss> {
        let py = target.py();
        let target = to_tensor("target", target, self.dtype)?;
        let y = self.graph.output.lock().as_ref().map(|output| output.y().clone());
        let y = y.ok_or_else(|| gone(py))?;
        let (objective, value) = compute(py, move || {
            let objective = mamba2::loss::mse(&y, &target)?;
            let value = objective.to_scalar()?;
            Ok((objective, value))
        })?;
        Ok(Loss { value, objective: Mutex::new(Some(objective)), graph: self.graph.clone() })
    }
}

/// A scalar made from an output; the package's `Loss` wraps it.
#[pyclass(frozen)]
pub struct Loss {
    value: f64,
    objective: Mutex<Option<Tensor>>,
    graph: Arc<Graph>,
}

#[pymethods]
impl Loss {
    /// The value as a Python float.
    fn item(&self) -> f64 {
        self.value
    }

    /// Gradients of the loss.
    fn backward(&self, py: Python<'_>) -> PyResult<Gradients> {
        let model = read(py, &self.graph.model)?;
        let output = self.graph.take(py)?;
        let objective = self.objective.lock().take();
        let objective = objective.ok_or_else(|| gone(py))?;
        let gradients = compute(py, move || output.backward_from(&model, &objective))?;
        Ok(self.graph.gradients(gradients))
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        if let Some(objective) = self.objective.get_mut().take() {
            free(objective);
        }
    }
}
