//! Configuration of a mixer: state-spaces' names and defaults, and the rules each field obeys.

use crate::dims::Dims;
use crate::error::{Error, Result};

/// Configuration of one Mamba-2 mixer. Defaults are those of state-spaces' `Mamba2`.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // state-spaces' own fields
pub struct Mamba2Config {
    /// Width of the input and the output.
    pub d_model: usize,
    /// State size N of each channel.
    pub d_state: usize,
    /// Taps K of the causal convolution.
    pub d_conv: usize,
    /// `d_inner = expand * d_model`.
    pub expand: usize,
    /// Channels P of one head.
    pub headdim: usize,
    /// Channels that go through the state space model; the rest of `d_inner` is a gated MLP. None: all of them.
    pub d_ssm: Option<usize>,
    /// Groups G of heads that share B and C.
    pub ngroups: usize,
    /// Groups of channels that the gated norm normalises apart. None: `ngroups`.
    pub norm_groups: Option<usize>,
    /// Range from which −A is drawn.
    pub a_init_range: (f64, f64),
    /// Convolution weights start in ±`conv_init`. None: ±1/√`d_conv`.
    pub conv_init: Option<f64>,
    /// D for each channel rather than for each head.
    pub d_has_hdim: bool,
    /// A gated RMS norm before the output projection; without it only the gate.
    pub rmsnorm: bool,
    /// Normalise before the gate rather than after it.
    pub norm_before_gate: bool,
    /// Smallest initial step Δ.
    pub dt_min: f64,
    /// Largest initial step Δ.
    pub dt_max: f64,
    /// Floor of the initial step Δ.
    pub dt_init_floor: f64,
    /// Bounds that Δ is clamped to.
    pub dt_limit: (f64, f64),
    /// Biases in both projections.
    pub bias: bool,
    /// A bias in the convolution.
    pub conv_bias: bool,
    /// Epsilon inside the norm's root.
    pub norm_eps: f64,
    /// Tokens of one block of the scan. It steers speed and memory, never the result.
    pub chunk_size: usize,
}

impl Mamba2Config {
    /// The defaults for a width of `d_model`.
    #[must_use]
    pub fn new(d_model: usize) -> Self {
        Self {
            d_model,
            d_state: 128,
            d_conv: 4,
            expand: 2,
            headdim: 64,
            d_ssm: None,
            ngroups: 1,
            norm_groups: None,
            a_init_range: (1.0, 16.0),
            conv_init: None,
            d_has_hdim: false,
            rmsnorm: true,
            norm_before_gate: false,
            dt_min: 1e-3,
            dt_max: 1e-1,
            dt_init_floor: 1e-4,
            dt_limit: (0.0, f64::INFINITY),
            bias: false,
            conv_bias: true,
            norm_eps: 1e-5,
            chunk_size: 256,
        }
    }

    /// Checks every field and gives the sizes that follow from them.
    ///
    /// # Errors
    /// [`Error::Config`] with the first field that breaks its rule.
    pub fn dims(&self) -> Result<Dims> {
        self.check_values()?;
        Dims::of(self)
    }

    fn check_values(&self) -> Result<()> {
        for (field, value) in [
            ("d_model", self.d_model),
            ("d_state", self.d_state),
            ("d_conv", self.d_conv),
            ("expand", self.expand),
            ("headdim", self.headdim),
            ("ngroups", self.ngroups),
            ("chunk_size", self.chunk_size),
        ] {
            if value == 0 {
                return Err(Error::config(field, "at least 1", value));
            }
        }
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let (low, high) = self.a_init_range;
        if !(positive(low) && positive(high) && low <= high) {
            return Err(Error::config(
                "A_init_range",
                "(low, high), both finite, with 0 < low <= high",
                self.a_init_range,
            ));
        }
        if let Some(bound) = self.conv_init
            && !positive(bound)
        {
            return Err(Error::config("conv_init", "None or a positive finite number", bound));
        }
        if !positive(self.dt_min) {
            return Err(Error::config("dt_min", "a positive finite number", self.dt_min));
        }
        if !(positive(self.dt_max) && self.dt_max >= self.dt_min) {
            return Err(Error::config("dt_max", format!("finite and at least dt_min={}", self.dt_min), self.dt_max));
        }
        if !positive(self.dt_init_floor) {
            return Err(Error::config("dt_init_floor", "a positive finite number", self.dt_init_floor));
        }
        let (low, high) = self.dt_limit;
        if !(low >= 0.0 && low.is_finite() && high >= low) {
            return Err(Error::config("dt_limit", "(low, high), low finite, with 0 <= low <= high", self.dt_limit));
        }
        check_eps("norm_eps", self.norm_eps)
    }
}

/// An epsilon must keep a root away from zero.
pub(crate) fn check_eps(field: &str, eps: f64) -> Result<()> {
    if eps > 0.0 && eps.is_finite() { Ok(()) } else { Err(Error::config(field, "a positive finite number", eps)) }
}
