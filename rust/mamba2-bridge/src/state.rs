//! `Mamba2State`: what a mixer remembers between calls.

use candle_core::Tensor;
use mamba2::params::check_finite;
use mamba2::{Error, State};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arrays::{to_array, to_float_tensor};
use crate::errors::OrRaise;

/// State of one mixer after a token, and likewise a gradient to such a state.
///
/// Parameters
/// ----------
/// conv_state
///     (batch, conv_dim, d_conv - 1): the raw (pre-convolution) xBC columns before the next token, oldest first.
/// ssm_state
///     (batch, nheads, headdim, d_state): the state S after the last token.
/// allow_nonfinite
///     Accept NaN and infinity.
///
/// Raises
/// ------
/// DTypeError
///     Not both float32 or both float64.
/// ShapeError
///     Other ranks, or two batch sizes. Whether a state fits a model is checked where it is used.
/// ValueError
///     NaN or infinity, unless ``allow_nonfinite``.
#[pyclass(frozen, module = "mamba2_bridge")]
pub struct Mamba2State {
    pub inner: State,
}

#[pymethods]
impl Mamba2State {
    #[new]
    #[pyo3(signature = (conv_state, ssm_state, *, allow_nonfinite=false))]
    fn new(conv_state: &Bound<'_, PyAny>, ssm_state: &Bound<'_, PyAny>, allow_nonfinite: bool) -> PyResult<Self> {
        let py = conv_state.py();
        let (conv, ssm) = (to_float_tensor("conv_state", conv_state)?, to_float_tensor("ssm_state", ssm_state)?);
        check(&conv, &ssm).or_raise(py)?;
        if !allow_nonfinite {
            check_finite("conv_state", &conv).or_raise(py)?;
            check_finite("ssm_state", &ssm).or_raise(py)?;
        }
        Ok(Self { inner: State { conv, ssm } })
    }

    /// A copy of the convolution's state, (batch, conv_dim, d_conv - 1).
    #[getter]
    fn conv_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, &self.inner.conv)
    }

    /// A copy of the state space model's state, (batch, nheads, headdim, d_state).
    #[getter]
    fn ssm_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, &self.inner.ssm)
    }

    /// Element type: float32 or float64.
    #[getter]
    fn dtype(&self) -> &'static str {
        mamba2::dtype_name(self.inner.ssm.dtype())
    }

    fn __repr__(&self) -> String {
        let shape = |tensor: &Tensor| tensor.dims().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (conv, ssm) = (shape(&self.inner.conv), shape(&self.inner.ssm));
        format!("Mamba2State(conv_state=({conv}), ssm_state=({ssm}), dtype={})", self.dtype())
    }

    #[allow(clippy::type_complexity)] // the shape of Python's own protocol
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((Bound<'py, PyAny>, Bound<'py, PyAny>), Bound<'py, PyDict>)> {
        let arrays = (self.conv_state(py)?, self.ssm_state(py)?);
        Ok((arrays, [("allow_nonfinite", true)].into_py_dict(py)?))
    }
}

fn check(conv: &Tensor, ssm: &Tensor) -> mamba2::Result<()> {
    if conv.dtype() != ssm.dtype() {
        let (conv, ssm) = (mamba2::dtype_name(conv.dtype()), mamba2::dtype_name(ssm.dtype()));
        let expected = format!("{conv} as conv_state");
        return Err(Error::DType { what: "ssm_state".into(), expected, got: ssm.into() });
    }
    let &[batch, _, _] = conv.dims() else {
        return Err(Error::shape("conv_state", "(batch, conv_dim, d_conv-1)", conv.dims()));
    };
    match ssm.dims() {
        &[same, _, _, _] if same == batch => Ok(()),
        got => Err(Error::shape("ssm_state", format!("(batch={batch}, nheads, headdim, d_state)"), got)),
    }
}

/// The states behind a list of Python's.
pub fn unwrap(states: Option<Vec<PyRef<'_, Mamba2State>>>) -> Option<Vec<State>> {
    states.map(|states| states.iter().map(|state| state.inner.clone()).collect())
}

/// Python's states of the core's.
pub fn wrap(states: &[State]) -> Vec<Mamba2State> {
    states.iter().map(|state| Mamba2State { inner: state.detach() }).collect()
}
