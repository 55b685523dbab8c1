//! Optimizers and clipping.

use std::sync::Arc;

use candle_core::Var;
use indexmap::IndexMap;
use mamba2::optim::{AdamW, AdamWConfig, AnyOptimizer, OptimizerState, Sgd, SgdConfig};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::to_float_tensor;
use crate::errors::OrRaise;
use crate::gradients::Gradients;
use crate::model::Model;
use crate::named::NamedTensors;
use crate::runtime::{complete, read, write};

/// An optimizer of one model's parameters; `mamba2_bridge.optim` wraps it.
#[pyclass(frozen)]
pub struct Optimizer {
    method: Arc<RwLock<Box<dyn AnyOptimizer>>>,
    model: Arc<RwLock<mamba2::Model>>,
}

#[pymethods]
impl Optimizer {
    #[staticmethod]
    #[pyo3(signature = (model, *, lr, betas, eps, weight_decay, no_decay, freeze))]
    #[allow(clippy::too_many_arguments)] // the method's hyperparameters
    fn adamw(
        py: Python<'_>,
        model: &Model,
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        no_decay: Vec<String>,
        freeze: Vec<String>,
    ) -> PyResult<Self> {
        let config = AdamWConfig { lr, betas, eps, weight_decay, no_decay, freeze };
        let vars = variables(py, model)?;
        Ok(Self::new(AdamW::from_named(vars, config).or_raise(py)?, model))
    }

    #[staticmethod]
    #[pyo3(signature = (model, *, lr, momentum, nesterov, weight_decay, no_decay, freeze))]
    #[allow(clippy::too_many_arguments)] // the method's hyperparameters
    fn sgd(
        py: Python<'_>,
        model: &Model,
        lr: f64,
        momentum: f64,
        nesterov: bool,
        weight_decay: f64,
        no_decay: Vec<String>,
        freeze: Vec<String>,
    ) -> PyResult<Self> {
        let config = SgdConfig { lr, momentum, nesterov, weight_decay, no_decay, freeze };
        let vars = variables(py, model)?;
        Ok(Self::new(Sgd::from_named(vars, config).or_raise(py)?, model))
    }

    /// One step.
    fn step(&self, py: Python<'_>, grads: &Gradients) -> PyResult<()> {
        let grads = read(py, &grads.inner)?;
        let mut model = write(py, &self.model)?;
        let mut method = write(py, &self.method)?;
        complete(py, move || model.change(|_| method.step_named(&grads)))
    }

    /// Learning rate.
    #[getter]
    fn lr(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(read(py, &self.method)?.lr())
    }

    /// Sets the learning rate of the steps to come.
    fn set_lr(&self, py: Python<'_>, lr: f64) -> PyResult<()> {
        write(py, &self.method)?.set_lr(lr).or_raise(py)
    }

    /// Steps taken, hyperparameters by name, moments by name.
    fn state(&self, py: Python<'_>) -> PyResult<(u64, IndexMap<String, f64>, NamedTensors)> {
        let state = read(py, &self.method)?.state();
        Ok((state.step, state.scalars, NamedTensors::new(state.tensors)))
    }

    /// Goes on from such a state, all of it or none.
    fn load_state(&self, step: u64, scalars: IndexMap<String, f64>, arrays: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = arrays.py();
        let convert = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let tensor = to_float_tensor(&name, &value)?;
            Ok((name, tensor))
        };
        let tensors = arrays.iter().map(convert).collect::<PyResult<_>>()?;
        let state = OptimizerState { step, scalars, tensors };
        write(py, &self.method)?.load_state(&state).or_raise(py)
    }
}

impl Optimizer {
    fn new(method: impl AnyOptimizer + 'static, model: &Model) -> Self {
        Self { method: Arc::new(RwLock::new(Box::new(method))), model: model.inner.clone() }
    }
}

fn variables(py: Python<'_>, model: &Model) -> PyResult<Vec<(String, Var)>> {
    Ok(read(py, &model.inner)?.parameters().iter().map(|(name, var)| (name.to_owned(), var.clone())).collect())
}

/// Clips in place and gives the norm before.
#[pyfunction]
pub fn clip_grad_norm(py: Python<'_>, grads: &Gradients, max_norm: f64) -> PyResult<f64> {
    let mut grads = write(py, &grads.inner)?;
    complete(py, move || mamba2::optim::clip_grad_norm(&mut grads, max_norm))
}
