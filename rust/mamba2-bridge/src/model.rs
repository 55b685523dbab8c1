//! A model: forward with and without a graph, step, and its parameters.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use candle_core::{Tensor, Var};
use indexmap::IndexMap;
use mamba2::Kernels;
use mamba2::params::Incompatible;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{parse_dtype, to_array, to_float_tensor, to_tensor, to_variable};
use crate::config::AnyConfig;
use crate::device;
use crate::errors::OrRaise;
use crate::feed::{FedArrays, to_feed};
use crate::named::NamedTensors;
use crate::output::Output;
use crate::runtime::{complete, compute, read, write};
use crate::state::{Mamba2State, unwrap, wrap};

/// The names that a load left aside: (missing, unexpected).
type LeftAside = (Vec<String>, Vec<String>);

/// A network and its parameters; the package's model classes wrap it.
#[pyclass(frozen)]
pub struct Model {
    pub inner: Arc<RwLock<mamba2::Model>>,
    pub dtype: candle_core::DType,
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (config, *, dtype, device, seed, kernels))]
    fn new(py: Python<'_>, config: AnyConfig, dtype: &str, device: &str, seed: u64, kernels: &str) -> PyResult<Self> {
        let (dtype, device) = (parse_dtype(py, dtype)?, device::parse(py, device)?);
        let kernels = parse_kernels(py, kernels)?;
        let inner = compute(py, move || mamba2::Model::with_kernels(&config.into(), dtype, &device, seed, kernels))?;
        Ok(Self { inner: Arc::new(RwLock::new(inner)), dtype })
    }

    /// Output and states, with the graph that a backward needs.
    #[pyo3(signature = (x, states=None, *, name))]
    fn forward(
        &self,
        x: &Bound<'_, PyAny>,
        states: Option<Vec<PyRef<'_, Mamba2State>>>,
        name: &str,
    ) -> PyResult<Output> {
        let py = x.py();
        let (x, states) = (to_variable(name, x, self.dtype)?.into_inner(), unwrap(states));
        let model = read(py, &self.inner)?;
        let output = compute(py, move || model.forward(&x, states.as_deref()))?;
        Ok(Output::new(output, None, self.inner.clone(), self.dtype))
    }

    /// The same with intermediates, those that are fed replaced.
    #[pyo3(signature = (x, states, feed, *, name))]
    fn record(
        &self,
        x: &Bound<'_, PyAny>,
        states: Option<Vec<PyRef<'_, Mamba2State>>>,
        feed: Vec<FedArrays<'_>>,
        name: &str,
    ) -> PyResult<Output> {
        let py = x.py();
        let (x, states) = (to_variable(name, x, self.dtype)?.into_inner(), unwrap(states));
        let feed = to_feed(feed, self.dtype)?;
        let model = read(py, &self.inner)?;
        let (output, recording) = compute(py, move || model.record(&x, states.as_deref(), feed))?;
        Ok(Output::new(output, Some(recording), self.inner.clone(), self.dtype))
    }

    /// The output alone, without a graph.
    #[pyo3(signature = (x, *, name))]
    fn infer<'py>(&self, x: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let x = to_tensor(name, x, self.dtype)?;
        let model = read(py, &self.inner)?;
        let y = compute(py, move || Ok(model.infer(&x, None)?.0))?;
        to_array(py, &y)
    }

    /// One token's output and the states after it, without a graph.
    #[pyo3(signature = (x_t, states, *, name))]
    fn step<'py>(
        &self,
        x_t: &Bound<'py, PyAny>,
        states: Vec<PyRef<'_, Mamba2State>>,
        name: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<Mamba2State>)> {
        let py = x_t.py();
        let (x_t, states) = (to_tensor(name, x_t, self.dtype)?, unwrap(Some(states)).unwrap_or_default());
        let model = read(py, &self.inner)?;
        let (y, states) = compute(py, move || model.step(&x_t, &states))?;
        Ok((to_array(py, &y)?, wrap(&states)))
    }

    /// The same with intermediates, those that are fed replaced.
    #[pyo3(signature = (x_t, states, feed, *, name))]
    fn record_step<'py>(
        &self,
        x_t: &Bound<'py, PyAny>,
        states: Vec<PyRef<'_, Mamba2State>>,
        feed: Vec<FedArrays<'_>>,
        name: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<Mamba2State>, NamedTensors)> {
        let py = x_t.py();
        let (x_t, states) = (to_tensor(name, x_t, self.dtype)?, unwrap(Some(states)).unwrap_or_default());
        let feed = to_feed(feed, self.dtype)?;
        let model = read(py, &self.inner)?;
        let (y, states, recording) = compute(py, move || model.record_step(&x_t, &states, feed))?;
        Ok((to_array(py, &y)?, wrap(&states), NamedTensors::new(recording.values())))
    }

    /// The states before the first token.
    fn zero_states(&self, py: Python<'_>, batch: usize) -> PyResult<Vec<Mamba2State>> {
        let model = read(py, &self.inner)?;
        Ok(wrap(&model.zero_states(batch).or_raise(py)?))
    }

    /// Names and shapes of the parameters, in the model's order.
    fn shapes(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<usize>)>> {
        let model = read(py, &self.inner)?;
        Ok(model.parameters().iter().map(|(name, var)| (name.to_owned(), var.dims().to_vec())).collect())
    }

    /// A copy of one parameter, None where there is none of this name.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let model = read(py, &self.inner)?;
        model.parameters().get(name).map(|var| to_array(py, &Var::as_detached_tensor(var))).transpose()
    }

    /// Sets parameters, all or none.
    #[pyo3(signature = (values, *, strict, allow_nonfinite))]
    fn set(&self, values: &Bound<'_, PyDict>, strict: bool, allow_nonfinite: bool) -> PyResult<LeftAside> {
        let py = values.py();
        let convert = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let tensor = to_float_tensor(&name, &value)?;
            Ok((name, tensor))
        };
        let values: IndexMap<String, Tensor> = values.iter().map(convert).collect::<PyResult<_>>()?;
        let mut model = write(py, &self.inner)?;
        let report = complete(py, move || model.change(|parameters| parameters.set(&values, strict, allow_nonfinite)))?;
        Ok(left_aside(report))
    }

    /// Writes the parameters to a safetensors file.
    fn save(&self, py: Python<'_>, path: PathBuf, metadata: HashMap<String, String>) -> PyResult<()> {
        let model = read(py, &self.inner)?;
        complete(py, move || model.parameters().save(&path, metadata))
    }

    /// Reads the parameters from a safetensors file, all or none.
    #[pyo3(signature = (path, *, strict, allow_nonfinite, cast=false))]
    fn load(
        &self,
        py: Python<'_>,
        path: PathBuf,
        strict: bool,
        allow_nonfinite: bool,
        cast: bool,
    ) -> PyResult<LeftAside> {
        let mut model = write(py, &self.inner)?;
        let cast = cast.then_some(self.dtype);
        let load = move || model.change(|parameters| parameters.load(&path, cast, strict, allow_nonfinite));
        Ok(left_aside(complete(py, load)?))
    }
}

fn left_aside(report: Incompatible) -> LeftAside {
    (report.missing, report.unexpected)
}

fn parse_kernels(py: Python<'_>, kernels: &str) -> PyResult<Kernels> {
    match kernels {
        "auto" => Ok(Kernels::Auto),
        "fused" => Ok(Kernels::Fused),
        "composed" => Ok(Kernels::Composed),
        other => {
            let error = mamba2::Error::config("kernels", "'auto', 'fused' or 'composed'", other);
            Err(crate::errors::raise(py, &error))
        }
    }
}

/// Writes a file that afterwards holds either its old contents or all of the new.
#[pyfunction]
pub fn write_file(py: Python<'_>, path: PathBuf, contents: Vec<u8>) -> PyResult<()> {
    complete(py, move || mamba2::files::write(&path, &contents))
}

/// Puts the folder `staged` in the place of `target` and removes what was there.
#[pyfunction]
pub fn replace_folder(py: Python<'_>, staged: PathBuf, target: PathBuf) -> PyResult<()> {
    complete(py, move || mamba2::files::replace_folder(&staged, &target))
}
