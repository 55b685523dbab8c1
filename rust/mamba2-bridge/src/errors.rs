//! The one place where the core's errors become Python's.

use mamba2::Error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError};
use pyo3::prelude::*;

/// The Python exception of a core error.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Shape { .. } => "ShapeError",
        Error::DType { .. } => "DTypeError",
        Error::Config { .. } => "ConfigError",
        Error::StateDict(_) | Error::OtherGradients(_) => "StateDictError",
        Error::NonFinite { .. } => "NonFiniteError",
        Error::MissingGradient { .. } => "MissingGradientError",
        Error::Graph(_) => "GraphError",
        Error::Device(_) => "DeviceError",
        Error::Checkpoint { .. } => "CheckpointError",
        Error::Io { path, source } => {
            // With number, text and file name, OSError makes itself the fitting subclass.
            return match source.raw_os_error() {
                Some(number) => PyOSError::new_err((number, strerror(source), path.clone().into_os_string())),
                None if source.kind() == std::io::ErrorKind::OutOfMemory => PyMemoryError::new_err(error.to_string()),
                None => PyOSError::new_err(error.to_string()),
            };
        }
        Error::OutOfMemory { .. } => return PyMemoryError::new_err(error.to_string()),
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
        Error::Candle(error) if is_out_of_memory(error) => return PyMemoryError::new_err(error.to_string()),
        _ => "InternalError",
    };
    bridge_error(py, class, &error.to_string())
}

/// Whether a GPU has no memory left: CUDA's and cuBLAS' own names, which Candle passes on as text.
fn is_out_of_memory(error: &candle_core::Error) -> bool {
    let text = error.to_string();
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"].iter().any(|name| text.contains(name))
}

/// An exception of the package, by the name of its class.
pub fn bridge_error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let made = py
        .import("mamba2_bridge.exceptions")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The system's text without the number that Rust adds to it.
fn strerror(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// For `?` on core results where the GIL is held.
pub trait OrRaise<T> {
    /// The value, or the core's error as a Python exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for mamba2::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}

impl<T> OrRaise<T> for candle_core::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &Error::from(error)))
    }
}
