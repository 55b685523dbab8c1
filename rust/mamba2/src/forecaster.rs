//! Sequence in, prediction from the last timestep out (docs/mamba2.md, "The forecaster").

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

use crate::block::{Block, RmsNorm};
use crate::config::Mamba2Config;
use crate::dims::{Dims, checked};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels::Kernels;
use crate::linear::Linear;
use crate::network::Network;
use crate::params::{Init, ParamSpec};
use crate::state::{State, check_dtype};
use crate::tap::Taps;

/// Configuration of a [`Mamba2Forecaster`].
#[derive(Debug, Clone, PartialEq)]
pub struct Mamba2ForecasterConfig {
    /// The mixer of every layer. Its `norm_eps` serves the norms between layers, too.
    pub mixer: Mamba2Config,
    /// Layers.
    pub n_layer: usize,
    /// Width of the input.
    pub d_input: usize,
    /// Width of the prediction.
    pub d_output: usize,
}

impl Mamba2ForecasterConfig {
    /// Checks every field.
    pub fn validate(&self) -> Result<()> {
        for (field, value) in [("n_layer", self.n_layer), ("d_input", self.d_input), ("d_output", self.d_output)] {
            if value == 0 {
                return Err(Error::config(field, "at least 1", value));
            }
        }
        if self.n_layer > MAX_LAYERS {
            return Err(Error::config("n_layer", format!("at most {MAX_LAYERS}"), self.n_layer));
        }
        let Dims { d_model, .. } = self.mixer.dims()?;
        checked(self.d_input.checked_mul(d_model), "d_input", self.d_input)?;
        checked(self.d_output.checked_mul(d_model), "d_output", self.d_output)?;
        Ok(())
    }

    /// The forecaster's parameters in their order.
    pub fn parameters(&self) -> Result<Vec<ParamSpec>> {
        self.validate()?;
        let d_model = self.mixer.d_model;
        let mut specs = Vec::from(linear("encoder", self.d_input, d_model));
        for layer in 0..self.n_layer {
            let prefix = format!("layers.{layer}");
            specs.extend(Block::parameters(&self.mixer)?.into_iter().map(|spec| spec.below(&prefix)));
        }
        specs.push(RmsNorm::parameter("norm_f.weight", d_model));
        specs.extend(linear("head", d_model, self.d_output));
        Ok(specs)
    }
}

fn linear(name: &str, from: usize, to: usize) -> [ParamSpec; 2] {
    let init = Init::kaiming(from);
    [ParamSpec::new(format!("{name}.weight"), [to, from], init), ParamSpec::new(format!("{name}.bias"), [to], init)]
}

/// The most layers: Candle walks and frees graphs by recursion, several calls deep for each layer.
const MAX_LAYERS: usize = 1000;

/// Encoder, residual Mamba-2 blocks, norm, and a head on the last timestep.
#[derive(Debug, Clone)]
pub struct Mamba2Forecaster {
    config: Mamba2ForecasterConfig,
    dtype: DType,
    encoder: Linear,
    layers: Vec<Block>,
    norm_f: RmsNorm,
    head: Linear,
}

impl Mamba2Forecaster {
    /// A forecaster whose parameters come from `vb`: values that are there are kept, others start from seed 0.
    pub fn new(config: &Mamba2ForecasterConfig, vb: VarBuilder) -> Result<Self> {
        Self::seeded(config, vb, 0)
    }

    /// The same with initial values that depend on `seed` and on each parameter's full name.
    pub fn seeded(config: &Mamba2ForecasterConfig, vb: VarBuilder, seed: u64) -> Result<Self> {
        config.validate()?;
        let Mamba2Config { d_model, norm_eps, .. } = config.mixer;
        let linear = |name: &str, from: usize, to: usize| -> Result<Linear> {
            let [weight, bias] = linear(name, from, to);
            Ok(Linear::new(weight.get(&vb, seed)?, Some(bias.get(&vb, seed)?)))
        };
        let block = |layer: usize| Block::seeded(&config.mixer, norm_eps, vb.pp(format!("layers.{layer}")), seed);
        let forecaster = Self {
            config: config.clone(),
            dtype: vb.dtype(),
            encoder: linear("encoder", config.d_input, d_model)?,
            layers: (0..config.n_layer).map(block).collect::<Result<_>>()?,
            norm_f: RmsNorm::new(&RmsNorm::parameter("norm_f.weight", d_model), norm_eps, &vb, seed)?,
            head: linear("head", d_model, config.d_output)?,
        };
        forecaster.with_kernels(Kernels::Auto)
    }

    /// The same forecaster on other kernels, see [`crate::Mamba2::with_kernels`].
    pub fn with_kernels(mut self, kernels: Kernels) -> Result<Self> {
        let fused = kernels.fused(self.head.weight.device().is_cpu())?;
        self.layers = self.layers.into_iter().map(|block| block.with_kernels(kernels)).collect::<Result<_>>()?;
        self.encoder.fused = fused;
        self.norm_f.fused = fused;
        self.head.fused = fused;
        Ok(self)
    }

    /// x (batch, seqlen, `d_input`) and one state for each layer (None: zeros) -> the prediction (batch, `d_output`) and the
    /// states after the last token. seqlen is at least 1.
    pub fn forward(&self, x: &Tensor, states: Option<&[State]>) -> Result<(Tensor, Vec<State>)> {
        self.forward_tapped(x, states, &Taps::none())
    }

    /// The same with its intermediates, see [`crate::tap`].
    pub fn forward_tapped(&self, x: &Tensor, states: Option<&[State]>, taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        self.check_input(x)?;
        let (batch, seqlen, _) = x.dims3()?;
        if let Some(states) = states {
            self.check_states(self.states_name(), states, batch, self.dtype)?;
        }
        if batch == 0 {
            let y = Tensor::zeros((0, self.config.d_output), self.dtype, x.device())?;
            let zeros = || self.zero_states(batch, self.dtype, x.device());
            return Ok((y, states.map_or_else(zeros, |states| Ok(states.to_vec()))?));
        }
        let mut r = taps.at("encoder", self.encoder.forward(x)?)?; // (batch, seqlen, d_model)
        let mut after = Vec::with_capacity(self.layers.len());
        for (layer, block) in self.layers.iter().enumerate() {
            interrupt::check()?;
            let inside = taps.within(format_args!("layers.{layer}"));
            let (sum, state) = block.forward_tapped(&r, states.map(|states| &states[layer]), &inside)?;
            r = taps.at(format_args!("layers.{layer}"), sum)?;
            after.push(state);
        }
        let last = self.norm_f.forward(&r.narrow(1, seqlen - 1, 1)?)?; // (batch, 1, d_model)
        let last = taps.at("norm_f", last.squeeze(1)?)?;
        Ok((taps.at("head", self.head.forward(&last)?)?, after))
    }
}

impl Network for Mamba2Forecaster {
    fn forward(&self, x: &Tensor, states: Option<&[State]>, taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        self.forward_tapped(x, states, taps)
    }

    fn step(&self, x_t: &Tensor, states: &[State], taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        self.check_step_input(x_t)?;
        self.forward_tapped(&x_t.unsqueeze(1)?, Some(states), taps)
    }

    fn check_input(&self, x: &Tensor) -> Result<()> {
        check_dtype("x", x, self.dtype)?;
        match x.dims() {
            &[_, seqlen, width] if width == self.config.d_input && seqlen > 0 => Ok(()),
            got => {
                let expected = format!("(batch, seqlen >= 1, d_input={})", self.config.d_input);
                Err(Error::shape("x", expected, got))
            }
        }
    }

    fn check_step_input(&self, x_t: &Tensor) -> Result<()> {
        check_dtype("x_t", x_t, self.dtype)?;
        match x_t.dims() {
            &[_, width] if width == self.config.d_input => Ok(()),
            got => Err(Error::shape("x_t", format!("(batch, d_input={})", self.config.d_input), got)),
        }
    }

    fn states_name(&self) -> &'static str {
        "states"
    }

    fn check_states(&self, what: &str, states: &[State], batch: usize, dtype: DType) -> Result<()> {
        if states.len() != self.layers.len() {
            let expected = format!("({},): one state for each layer", self.layers.len());
            return Err(Error::shape(what, expected, &[states.len()]));
        }
        for (layer, (block, state)) in self.layers.iter().zip(states).enumerate() {
            state.check(&format!("{what}[{layer}]"), block.mixer().dims(), batch, dtype)?;
        }
        Ok(())
    }

    fn zero_states(&self, batch: usize, dtype: DType, device: &Device) -> Result<Vec<State>> {
        self.layers.iter().map(|block| State::zeros(block.mixer().dims(), batch, dtype, device)).collect()
    }
}
