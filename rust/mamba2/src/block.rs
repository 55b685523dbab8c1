//! A residual block: `r + mixer(RMSNorm(r))`.

use candle_core::Tensor;
use candle_nn::VarBuilder;

use crate::composed::rms_norm;
use crate::config::Mamba2Config;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::mixer::Mamba2;
use crate::ops;
use crate::params::{Init, ParamSpec};
use crate::state::State;
use crate::tap::Taps;

/// One layer of a stack: a pre-norm, a mixer and the residual connection.
#[derive(Debug, Clone)]
pub struct Block {
    norm: RmsNorm,
    mixer: Mamba2,
}

impl Block {
    /// The parameters below the layer's prefix, in their order.
    pub fn parameters(mixer: &Mamba2Config) -> Result<Vec<ParamSpec>> {
        let mut specs = vec![RmsNorm::parameter("norm.weight", mixer.d_model)];
        specs.extend(mixer.parameters()?.into_iter().map(|spec| spec.below("mixer")));
        Ok(specs)
    }

    /// A block whose parameters come from `vb`, as those of [`Mamba2::seeded`].
    pub fn seeded(mixer: &Mamba2Config, norm_eps: f64, vb: VarBuilder, seed: u64) -> Result<Self> {
        let norm = RmsNorm::new(&RmsNorm::parameter("norm.weight", mixer.d_model), norm_eps, &vb, seed)?;
        Self { norm, mixer: Mamba2::seeded(mixer, vb.pp("mixer"), seed)? }.with_kernels(Kernels::Auto)
    }

    /// The same block on other kernels, see [`Mamba2::with_kernels`].
    pub fn with_kernels(mut self, kernels: Kernels) -> Result<Self> {
        self.mixer = self.mixer.with_kernels(kernels)?;
        self.norm.fused = self.mixer.is_fused();
        Ok(self)
    }

    /// r (batch, seqlen, `d_model`) -> the same shape, and the mixer's state after the last token.
    pub fn forward(&self, r: &Tensor, state: Option<&State>) -> Result<(Tensor, State)> {
        self.forward_tapped(r, state, &Taps::none())
    }

    /// The same with its intermediates, see [`crate::tap`].
    pub fn forward_tapped(&self, r: &Tensor, state: Option<&State>, taps: &Taps) -> Result<(Tensor, State)> {
        let u = taps.at("norm", self.norm.forward(r)?)?;
        let (y, state) = self.mixer.forward_tapped(&u, state, &taps.within("mixer"))?;
        Ok(((r + y)?, state))
    }

    /// The mixer inside.
    #[must_use]
    pub fn mixer(&self) -> &Mamba2 {
        &self.mixer
    }
}

/// An RMS norm with a weight.
#[derive(Debug, Clone)]
pub(crate) struct RmsNorm {
    weight: Tensor,
    eps: f64,
    /// On the CPU kernels rather than in Candle's operations.
    pub(crate) fused: bool,
}

impl RmsNorm {
    /// The norm's only parameter.
    pub(crate) fn parameter(name: &str, width: usize) -> ParamSpec {
        ParamSpec::new(name, [width], Init::Constant(1.0))
    }

    pub(crate) fn new(parameter: &ParamSpec, eps: f64, vb: &VarBuilder, seed: u64) -> Result<Self> {
        Ok(Self { weight: parameter.get(vb, seed)?, eps, fused: false })
    }

    /// x (batch, seqlen, width) -> the same shape.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.fused && x.elem_count() > 0 {
            return Ok(ops::rms_norm(x, &self.weight, self.eps)?);
        }
        rms_norm(x, &self.weight, 1, self.eps)
    }
}
