//! Configurations, checked by the core's rules.

use mamba2::{Architecture, Mamba2Config, Mamba2ForecasterConfig};
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// A mixer's configuration; `mamba2_bridge.Mamba2Config` documents the fields.
#[pyclass(frozen, from_py_object)]
#[derive(Clone)]
pub struct MixerConfig {
    pub inner: Mamba2Config,
}

#[pymethods]
impl MixerConfig {
    #[new]
    #[pyo3(signature = (*, d_model, d_state, d_conv, expand, headdim, d_ssm, ngroups, norm_groups, A_init_range, conv_init,
        D_has_hdim, rmsnorm, norm_before_gate, dt_min, dt_max, dt_init_floor, dt_limit, bias, conv_bias, norm_eps, chunk_size))]
    #[allow(non_snake_case, clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // state-spaces' own names
    fn new(
        py: Python<'_>,
        d_model: usize,
        d_state: usize,
        d_conv: usize,
        expand: usize,
        headdim: usize,
        d_ssm: Option<usize>,
        ngroups: usize,
        norm_groups: Option<usize>,
        A_init_range: (f64, f64),
        conv_init: Option<f64>,
        D_has_hdim: bool,
        rmsnorm: bool,
        norm_before_gate: bool,
        dt_min: f64,
        dt_max: f64,
        dt_init_floor: f64,
        dt_limit: (f64, f64),
        bias: bool,
        conv_bias: bool,
        norm_eps: f64,
        chunk_size: usize,
    ) -> PyResult<Self> {
        let inner = Mamba2Config {
            d_model,
            d_state,
            d_conv,
            expand,
            headdim,
            d_ssm,
            ngroups,
            norm_groups,
            a_init_range: A_init_range,
            conv_init,
            d_has_hdim: D_has_hdim,
            rmsnorm,
            norm_before_gate,
            dt_min,
            dt_max,
            dt_init_floor,
            dt_limit,
            bias,
            conv_bias,
            norm_eps,
            chunk_size,
        };
        inner.dims().or_raise(py)?;
        Ok(Self { inner })
    }

    /// `expand * d_model`.
    #[getter]
    fn d_inner(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.dims().or_raise(py)?.d_inner)
    }

    /// Number of heads.
    #[getter]
    fn nheads(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.dims().or_raise(py)?.nheads)
    }

    /// Channels of the convolution.
    #[getter]
    fn conv_dim(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.dims().or_raise(py)?.conv_dim)
    }
}

/// A forecaster's configuration; `mamba2_bridge.Mamba2ForecasterConfig` documents the fields.
#[pyclass(frozen, from_py_object)]
#[derive(Clone)]
pub struct ForecasterConfig {
    inner: Mamba2ForecasterConfig,
}

#[pymethods]
impl ForecasterConfig {
    #[new]
    #[pyo3(signature = (*, mixer, n_layer, d_input, d_output))]
    fn new(py: Python<'_>, mixer: MixerConfig, n_layer: usize, d_input: usize, d_output: usize) -> PyResult<Self> {
        let inner = Mamba2ForecasterConfig { mixer: mixer.inner, n_layer, d_input, d_output };
        inner.validate().or_raise(py)?;
        Ok(Self { inner })
    }
}

/// Either configuration.
#[derive(FromPyObject)]
pub enum AnyConfig {
    Mixer(MixerConfig),
    Forecaster(ForecasterConfig),
}

impl From<AnyConfig> for Architecture {
    fn from(config: AnyConfig) -> Self {
        match config {
            AnyConfig::Mixer(config) => Self::Mixer(config.inner),
            AnyConfig::Forecaster(config) => Self::Forecaster(config.inner),
        }
    }
}
