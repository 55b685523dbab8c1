//! One Mamba-2 mixer.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

use crate::composed::{CoreParams, mixer_core};
use crate::config::Mamba2Config;
use crate::dims::Dims;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels::Kernels;
use crate::kernels::core::CoreOptions;
use crate::linear::Linear;
use crate::network::Network;
use crate::ops;
use crate::params::{Init, ParamSpec};
use crate::state::{State, check_dtype};
use crate::tap::Taps;

impl Mamba2Config {
    /// The mixer's parameters in their order: state-spaces' names, `PyTorch`'s defaults (docs/mamba2.md, "Init").
    pub fn parameters(&self) -> Result<Vec<ParamSpec>> {
        let Dims { d_model, d_inner, d_ssm, nheads, conv_dim, d_conv, d_in_proj, .. } = self.dims()?;
        let conv = Init::kaiming(d_conv);
        let (low, high) = self.a_init_range;
        let step = Init::StepBias { min: self.dt_min, max: self.dt_max, floor: self.dt_init_floor };
        let skips = if self.d_has_hdim { d_ssm } else { nheads };
        let all = [
            (true, "in_proj.weight", vec![d_in_proj, d_model], Init::kaiming(d_model)),
            (self.bias, "in_proj.bias", vec![d_in_proj], Init::kaiming(d_model)),
            (
                true,
                "conv1d.weight",
                vec![conv_dim, 1, d_conv],
                self.conv_init.map_or(conv, |bound| Init::Uniform { bound }),
            ),
            (self.conv_bias, "conv1d.bias", vec![conv_dim], conv),
            (true, "dt_bias", vec![nheads], step),
            (true, "A_log", vec![nheads], Init::LogOfUniform { low, high }),
            (true, "D", vec![skips], Init::Constant(1.0)),
            (self.rmsnorm, "norm.weight", vec![d_ssm], Init::Constant(1.0)),
            (true, "out_proj.weight", vec![d_model, d_inner], Init::kaiming(d_inner)),
            (self.bias, "out_proj.bias", vec![d_model], Init::kaiming(d_inner)),
        ];
        let wanted = all.into_iter().filter(|(wanted, ..)| *wanted);
        Ok(wanted.map(|(_, name, shape, init)| ParamSpec::new(name, shape, init)).collect())
    }
}

/// One Mamba-2 mixer: u (batch, seqlen, `d_model`) -> (batch, seqlen, `d_model`). state-spaces' `Mamba2`.
#[derive(Debug, Clone)]
pub struct Mamba2 {
    config: Mamba2Config,
    dims: Dims,
    dtype: DType,
    in_proj: Linear,
    core: CoreParams,
    out_proj: Linear,
    fused: bool,
}

impl Mamba2 {
    /// A mixer whose parameters come from `vb`: values that are there are kept, others start from seed 0.
    pub fn new(config: &Mamba2Config, vb: VarBuilder) -> Result<Self> {
        Self::seeded(config, vb, 0)
    }

    /// The same with initial values that depend on `seed` and on each parameter's full name.
    pub fn seeded(config: &Mamba2Config, vb: VarBuilder, seed: u64) -> Result<Self> {
        let dims = config.dims()?;
        let dtype = vb.dtype();
        if !matches!(dtype, DType::F32 | DType::F64) {
            let got = crate::dtype_name(dtype).into();
            return Err(Error::DType {
                what: "a mixer's parameters".into(),
                expected: "float32 or float64".into(),
                got,
            });
        }
        let specs = config.parameters()?;
        let optional =
            |name: &str| specs.iter().find(|spec| spec.name == name).map(|spec| spec.get(&vb, seed)).transpose();
        let required = |name: &str| {
            optional(name)?.ok_or_else(|| Error::StateDict(format!("{name} is not among the mixer's parameters")))
        };
        Ok(Self {
            config: config.clone(),
            dims,
            dtype,
            in_proj: Linear::new(required("in_proj.weight")?, optional("in_proj.bias")?),
            core: CoreParams {
                conv_weight: required("conv1d.weight")?,
                conv_bias: optional("conv1d.bias")?,
                dt_bias: required("dt_bias")?,
                a_log: required("A_log")?,
                d: required("D")?,
                norm_weight: optional("norm.weight")?,
            },
            out_proj: Linear::new(required("out_proj.weight")?, optional("out_proj.bias")?),
            fused: Kernels::Auto.fused(vb.device().is_cpu())?,
        })
    }

    /// The same mixer on other kernels. A new one is on [`Kernels::Auto`].
    ///
    /// # Errors
    /// [`Error::Config`]: the fused kernels on a device other than a CPU.
    pub fn with_kernels(mut self, kernels: Kernels) -> Result<Self> {
        self.fused = kernels.fused(self.in_proj.weight.device().is_cpu())?;
        Ok(self)
    }

    /// Whether the fused kernels compute.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.fused
    }

    /// u (batch, seqlen, `d_model`) and the state before it (zeros where none is given) -> y of u's shape and the state
    /// after the last token. Differentiable in u, in the state and in every parameter. seqlen and batch may be 0.
    pub fn forward(&self, u: &Tensor, state: Option<&State>) -> Result<(Tensor, State)> {
        self.forward_tapped(u, state, &Taps::none())
    }

    /// The same with its intermediates, see [`crate::tap`].
    pub fn forward_tapped(&self, u: &Tensor, state: Option<&State>, taps: &Taps) -> Result<(Tensor, State)> {
        self.check_input(u)?;
        let batch = u.dim(0)?;
        if let Some(state) = state {
            state.check(self.states_name(), &self.dims, batch, self.dtype)?;
        }
        let zeros = || State::zeros(&self.dims, batch, self.dtype, u.device());
        if u.elem_count() == 0 {
            let state = state.map_or_else(zeros, |state| Ok(state.clone()))?;
            return Ok((Tensor::zeros(u.shape(), self.dtype, u.device())?, state));
        }
        interrupt::check()?;
        if self.fused {
            let Self { dims, in_proj, core, out_proj, .. } = self;
            let mixer = ops::Mixer { dims, options: CoreOptions::of(&self.config), in_proj, core, out_proj };
            let (y, state) = ops::mixer(mixer, u, state)?;
            return Ok((taps.at("out_proj", y)?, state));
        }
        let state = state.map_or_else(zeros, |state| Ok(state.clone()))?;
        let zxbcdt = self.in_proj.forward(u)?; // (batch, seqlen, d_in_proj)
        interrupt::check()?;
        let (y, state) = mixer_core(&self.config, &self.dims, &zxbcdt, &self.core, &state, taps)?; // (batch, seqlen, d_inner)
        Ok((taps.at("out_proj", self.out_proj.forward(&y)?)?, state))
    }

    /// The next token: `u_t` (batch, `d_model`) -> `y_t` (batch, `d_model`) and the state after it. Differentiable.
    pub fn step(&self, u_t: &Tensor, state: &State) -> Result<(Tensor, State)> {
        self.step_tapped(u_t, state, &Taps::none())
    }

    /// The same with its intermediates, whose seqlen is 1, see [`crate::tap`].
    pub fn step_tapped(&self, u_t: &Tensor, state: &State, taps: &Taps) -> Result<(Tensor, State)> {
        self.check_step_input(u_t)?;
        let (y, state) = self.forward_tapped(&u_t.unsqueeze(1)?, Some(state), taps)?;
        Ok((y.squeeze(1)?, state))
    }

    /// The sizes that follow from the configuration.
    #[must_use]
    pub fn dims(&self) -> &Dims {
        &self.dims
    }
}

impl Network for Mamba2 {
    fn forward(&self, x: &Tensor, states: Option<&[State]>, taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        let (y, state) = self.forward_tapped(x, states.and_then(<[State]>::first), taps)?;
        Ok((y, vec![state]))
    }

    fn step(&self, x_t: &Tensor, states: &[State], taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        let [state] = states else { return Err(one_state(states.len())) };
        let (y, state) = self.step_tapped(x_t, state, taps)?;
        Ok((y, vec![state]))
    }

    fn check_input(&self, x: &Tensor) -> Result<()> {
        check_dtype("u", x, self.dtype)?;
        let expected = || format!("(batch, seqlen, d_model={})", self.dims.d_model);
        match x.dims() {
            &[_, _, width] if width == self.dims.d_model => Ok(()),
            got => Err(Error::shape("u", expected(), got)),
        }
    }

    fn check_step_input(&self, x_t: &Tensor) -> Result<()> {
        check_dtype("u_t", x_t, self.dtype)?;
        match x_t.dims() {
            &[_, width] if width == self.dims.d_model => Ok(()),
            got => Err(Error::shape("u_t", format!("(batch, d_model={})", self.dims.d_model), got)),
        }
    }

    fn states_name(&self) -> &'static str {
        "state"
    }

    fn check_states(&self, what: &str, states: &[State], batch: usize, dtype: DType) -> Result<()> {
        let [state] = states else { return Err(one_state(states.len())) };
        state.check(what, &self.dims, batch, dtype)
    }

    fn zero_states(&self, batch: usize, dtype: DType, device: &Device) -> Result<Vec<State>> {
        Ok(vec![State::zeros(&self.dims, batch, dtype, device)?])
    }
}

fn one_state(got: usize) -> Error {
    Error::shape("state", "(1,): one state for the mixer", &[got])
}
