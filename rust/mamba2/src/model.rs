//! A model that owns its `VarMap`: built from a configuration, run with or without a graph, differentiated by name.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};

use crate::config::Mamba2Config;
use crate::error::{Error, Result};
use crate::forecaster::{Mamba2Forecaster, Mamba2ForecasterConfig};
use crate::gradients::{Gradients, collect};
use crate::kernels::Kernels;
use crate::loss;
use crate::memory;
use crate::mixer::Mamba2;
use crate::network::Network;
use crate::ops;
use crate::params::{ParamSpec, Parameters};
use crate::state::{State, check_dtype};
use crate::tap::{Feed, Recording, Taps};

/// Which network, and of which sizes.
#[derive(Debug, Clone, PartialEq)]
pub enum Architecture {
    /// One mixer.
    Mixer(Mamba2Config),
    /// A forecaster.
    Forecaster(Mamba2ForecasterConfig),
}

impl Architecture {
    /// The network's parameters in their order.
    pub fn parameters(&self) -> Result<Vec<ParamSpec>> {
        match self {
            Self::Mixer(config) => config.parameters(),
            Self::Forecaster(config) => config.parameters(),
        }
    }

    fn build(&self, vb: VarBuilder, seed: u64, kernels: Kernels) -> Result<Box<dyn Network>> {
        Ok(match self {
            Self::Mixer(config) => Box::new(Mamba2::seeded(config, vb, seed)?.with_kernels(kernels)?),
            Self::Forecaster(config) => Box::new(Mamba2Forecaster::seeded(config, vb, seed)?.with_kernels(kernels)?),
        })
    }
}

/// A network and the `VarMap` it lives on.
pub struct Model {
    parameters: Parameters,
    version: u64,
    dtype: DType,
    device: Device,
    /// On the variables: records a graph.
    network: Box<dyn Network>,
    /// On detached tensors that share the variables' storage: Candle has no other way to record none.
    inference: Box<dyn Network>,
}

impl Model {
    /// A new model with parameters that start from `seed`.
    pub fn new(architecture: &Architecture, dtype: DType, device: &Device, seed: u64) -> Result<Self> {
        Self::with_kernels(architecture, dtype, device, seed, Kernels::Auto)
    }

    /// The same on other kernels than [`Kernels::Auto`].
    ///
    /// # Errors
    /// [`Error::Config`]: the fused kernels on a device other than a CPU.
    pub fn with_kernels(
        architecture: &Architecture,
        dtype: DType,
        device: &Device,
        seed: u64,
        kernels: Kernels,
    ) -> Result<Self> {
        kernels.fused(device.is_cpu())?;
        let specs = architecture.parameters()?;
        let mut sizes = specs.iter().map(|spec| spec.shape.iter().product::<usize>());
        let elements = sizes.try_fold(0_usize, usize::checked_add);
        memory::check(elements.and_then(|elements| elements.checked_mul(dtype.size_in_bytes())), "the parameters")?;
        let varmap = VarMap::new();
        let network = architecture.build(VarBuilder::from_varmap(&varmap, dtype, device), seed, kernels)?;
        let parameters = Parameters::new(varmap, &specs)?;
        let inference =
            architecture.build(VarBuilder::from_tensors(parameters.detached(), dtype, device), seed, kernels)?;
        Ok(Self { parameters, version: 0, dtype, device: device.clone(), network, inference })
    }

    /// The parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The parameters, to be changed: outputs made before have no backward afterwards.
    pub fn parameters_mut(&mut self) -> &mut Parameters {
        self.version += 1;
        &mut self.parameters
    }

    /// Changes the parameters: outputs made before have no backward afterwards, and keep it where `change` refuses.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Parameters) -> Result<R>) -> Result<R> {
        let done = change(&mut self.parameters);
        // Candle's own errors come from the writing; all others from the checks before it.
        if matches!(done, Ok(_) | Err(Error::Candle(_))) {
            self.version += 1;
        }
        done
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The states before the first token.
    pub fn zero_states(&self, batch: usize) -> Result<Vec<State>> {
        self.network.zero_states(batch, self.dtype, &self.device)
    }

    /// Output and states after the last token, with the graph that [`Output::backward`] needs.
    pub fn forward(&self, x: &Tensor, states: Option<&[State]>) -> Result<Output> {
        self.forward_tapped(x, states, &Taps::none())
    }

    /// The same, and its intermediates: what [`crate::tap`] lists, each replaced where `feed` has its name. Their gradients
    /// are there after the output's backward.
    ///
    /// # Errors
    /// [`Error::Config`]: `feed` has names that no intermediate has. [`Error::Shape`], [`Error::DType`]: what is fed doesn't fit.
    pub fn record(&self, x: &Tensor, states: Option<&[State]>, feed: Feed) -> Result<(Output, Recording)> {
        let recording = Recording::new(self.dtype, feed);
        let output = self.forward_tapped(x, states, &recording.taps())?;
        recording.check_fed()?;
        Ok((output, recording))
    }

    fn forward_tapped(&self, x: &Tensor, states: Option<&[State]>, taps: &Taps) -> Result<Output> {
        self.network.check_input(x)?;
        let batch = x.dim(0)?;
        let given = states.map(|states| self.variables(states, batch)).transpose()?;
        let input = Var::from_tensor(&self.here(x)?)?.into_inner();
        let (y, states) = self.network.forward(&input, given.as_deref(), taps)?;
        Ok(Output { y, states, input, initial: given, version: self.version })
    }

    /// Output and states after the last token, without a graph.
    pub fn infer(&self, x: &Tensor, states: Option<&[State]>) -> Result<(Tensor, Vec<State>)> {
        self.network.check_input(x)?;
        let states = states.map(|states| self.detached(states, x.dim(0)?)).transpose()?;
        self.inference.forward(&self.here(x)?.detach(), states.as_deref(), &Taps::none())
    }

    /// Mean squared error with a graph that starts at the parameters alone: what an audit looks at.
    pub fn objective(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        self.network.check_input(x)?;
        loss::mse(&self.network.forward(&self.here(x)?.detach(), None, &Taps::none())?.0, target)
    }

    /// The next token's output and the states after it, without a graph. `x_t` is an input without its seqlen.
    pub fn step(&self, x_t: &Tensor, states: &[State]) -> Result<(Tensor, Vec<State>)> {
        self.step_tapped(x_t, states, &Taps::none())
    }

    /// The same, and its intermediates, as [`Model::record`]; their seqlen is 1. There is no backward.
    ///
    /// # Errors
    /// Those of [`Model::record`]. [`Error::Config`]: `feed` has gradients.
    pub fn record_step(&self, x_t: &Tensor, states: &[State], feed: Feed) -> Result<(Tensor, Vec<State>, Recording)> {
        let gradients: Vec<_> = feed.iter().filter(|(_, fed)| fed.gradient.is_some()).map(|(name, _)| name).collect();
        if !gradients.is_empty() {
            return Err(Error::config("feed", "values alone, since a step has no backward", gradients));
        }
        let recording = Recording::new(self.dtype, feed);
        let (y, states) = self.step_tapped(x_t, states, &recording.taps())?;
        recording.check_fed()?;
        Ok((y, states, recording))
    }

    fn step_tapped(&self, x_t: &Tensor, states: &[State], taps: &Taps) -> Result<(Tensor, Vec<State>)> {
        self.network.check_step_input(x_t)?;
        self.inference.step(&self.here(x_t)?.detach(), &self.detached(states, x_t.dim(0)?)?, taps)
    }

    /// A tensor on the model's device: itself where it is there.
    fn here(&self, tensor: &Tensor) -> candle_core::Result<Tensor> {
        memory::on_device(tensor, &self.device)
    }

    fn detached(&self, states: &[State], batch: usize) -> Result<Vec<State>> {
        self.network.check_states(self.network.states_name(), states, batch, self.dtype)?;
        states.iter().map(|state| Ok(state.to_device(&self.device)?.detach())).collect()
    }

    /// Copies of the states that gradients can be asked for.
    fn variables(&self, states: &[State], batch: usize) -> Result<Vec<State>> {
        self.network.check_states(self.network.states_name(), states, batch, self.dtype)?;
        let variable = |tensor: &Tensor| Var::from_tensor(&self.here(tensor)?).map(Var::into_inner);
        states.iter().map(|state| Ok(State { conv: variable(&state.conv)?, ssm: variable(&state.ssm)? })).collect()
    }
}

/// What a forward pass gives, and the graph that leads to it. The graph goes away with it.
pub struct Output {
    y: Tensor,
    states: Vec<State>,
    input: Tensor,
    initial: Option<Vec<State>>,
    version: u64,
}

impl Output {
    /// The output.
    #[must_use]
    pub fn y(&self) -> &Tensor {
        &self.y
    }

    /// The states after the last token.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Mean squared error against `target` as a scalar in f64, see [`loss::mse`].
    pub fn mse_loss(&self, target: &Tensor) -> Result<Tensor> {
        loss::mse(&self.y, target)
    }

    /// Vector-Jacobian product with the upstream gradients of the output and of the states after the last token.
    ///
    /// # Errors
    /// [`Error::Graph`] if `model`'s parameters have changed since the forward pass, [`Error::MissingGradient`] naming
    /// parameters that were not reached.
    pub fn backward(self, model: &Model, dy: &Tensor, dstates: Option<&[State]>) -> Result<Gradients> {
        self.check_upstream(model, dy, dstates)?;
        self.check_version(model)?;
        if self.is_empty() {
            return self.empty_gradients(model, dstates);
        }
        let device = model.device();
        let dy = dy.to_device(device)?;
        let dstates: Vec<_> =
            dstates.unwrap_or_default().iter().map(|state| state.to_device(device)).collect::<Result<_>>()?;
        let mut tensors = vec![(&self.y, &dy)];
        for (state, upstream) in self.states.iter().zip(&dstates) {
            for (tensor, upstream) in [(&state.conv, &upstream.conv), (&state.ssm, &upstream.ssm)] {
                if tensor.elem_count() > 0 {
                    tensors.push((tensor, upstream));
                }
            }
        }
        let total = ops::upstream(&tensors)?;
        self.backward_from(model, &total)
    }

    /// Gradients of `objective`, a scalar made from this output.
    pub fn backward_from(self, model: &Model, objective: &Tensor) -> Result<Gradients> {
        self.check_version(model)?;
        if self.is_empty() {
            return self.empty_gradients(model, None);
        }
        let grads = ops::sink::backward(objective)?;
        let parameters = collect(model.parameters.iter(), &grads)?;
        let of = |tensor: &Tensor| match grads.get(tensor) {
            Some(grad) => Ok(grad.detach()),
            None => tensor.detach().zeros_like(), // a state without elements
        };
        let state = |state: &State| Ok(State { conv: of(&state.conv)?, ssm: of(&state.ssm)? });
        let states = self.initial.as_ref().map(|states| states.iter().map(state).collect::<Result<_>>()).transpose()?;
        Ok(Gradients::new(parameters, of(&self.input)?, states))
    }

    /// Refuses upstream gradients that don't fit the output and its states.
    pub fn check_upstream(&self, model: &Model, dy: &Tensor, dstates: Option<&[State]>) -> Result<()> {
        check_dtype("dy", dy, model.dtype)?;
        if dy.dims() != self.y.dims() {
            return Err(Error::shape("dy", format!("{} as the output", crate::error::shape(self.y.dims())), dy.dims()));
        }
        match dstates {
            Some(dstates) => model.network.check_states("dstate", dstates, self.input.dim(0)?, model.dtype),
            None => Ok(()),
        }
    }

    fn check_version(&self, model: &Model) -> Result<()> {
        if self.version == model.version {
            return Ok(());
        }
        let message = "the parameters have changed since this output's forward: run forward again before backward";
        Err(Error::Graph(message.into()))
    }

    /// No token came in: nothing was computed, and zeros are the right gradients.
    fn is_empty(&self) -> bool {
        self.input.elem_count() == 0
    }

    /// The states passed through.
    fn empty_gradients(self, model: &Model, dstates: Option<&[State]>) -> Result<Gradients> {
        let zeros = |(name, var): (&str, &Var)| Ok((name.to_owned(), var.as_detached_tensor().zeros_like()?));
        let parameters = model.parameters.iter().map(zeros).collect::<Result<_>>()?;
        let zero = |state: &State| {
            Ok(State { conv: state.conv.detach().zeros_like()?, ssm: state.ssm.detach().zeros_like()? })
        };
        let states = match (&self.initial, dstates) {
            (None, _) => None,
            (Some(_), Some(upstream)) => Some(upstream.iter().map(State::detach).collect()),
            (Some(initial), None) => Some(initial.iter().map(zero).collect::<Result<_>>()?),
        };
        Ok(Gradients::new(parameters, self.input.detach().zeros_like()?, states))
    }
}
