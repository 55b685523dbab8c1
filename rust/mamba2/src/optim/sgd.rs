//! Stochastic gradient descent with momentum, step by step as `torch.optim.SGD` computes it.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use indexmap::IndexMap;

use super::group::{DEFAULT_NO_DECAY, Group, OptimizerState, Update, check, numbered, prefixed, scalar, sorted};
use crate::error::{Error, Result};
use crate::gradients::Gradients;

/// Hyperparameters; the defaults are torch's.
#[derive(Debug, Clone)]
pub struct SgdConfig {
    /// Learning rate.
    pub lr: f64,
    /// Momentum, 0 for none.
    pub momentum: f64,
    /// Nesterov's form of the momentum.
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Glob patterns of the names that get no weight decay.
    pub no_decay: Vec<String>,
    /// Glob patterns of the names that are not trained.
    pub freeze: Vec<String>,
}

impl Default for SgdConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            no_decay: DEFAULT_NO_DECAY.map(String::from).to_vec(),
            freeze: Vec::new(),
        }
    }
}

impl SgdConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..f64::INFINITY)?;
        check("momentum", self.momentum, 0.0..f64::INFINITY)?;
        check("weight_decay", self.weight_decay, 0.0..f64::INFINITY)?;
        if self.nesterov && self.momentum == 0.0 {
            return Err(Error::config("nesterov", "False where momentum is 0", self.nesterov));
        }
        Ok(())
    }
}

/// The optimizer. Scalars are f64, the momentum has its parameter's element type.
#[derive(Debug, Clone)]
pub struct Sgd {
    group: Group,
    config: SgdConfig,
    step: u64,
    momentum: IndexMap<String, Tensor>,
}

impl Sgd {
    /// An optimizer of named variables.
    pub fn from_named(vars: impl IntoIterator<Item = (String, Var)>, config: SgdConfig) -> Result<Self> {
        config.check()?;
        let group = Group::new(vars, &config.no_decay, &config.freeze)?;
        let momentum = if config.momentum == 0.0 { IndexMap::new() } else { group.zeros()? };
        Ok(Self { group, config, step: 0, momentum })
    }

    /// An optimizer of all variables that are in `varmap` now.
    pub fn from_varmap(varmap: &VarMap, config: SgdConfig) -> Result<Self> {
        Self::from_named(sorted(varmap), config)
    }

    /// One step with gradients by name.
    ///
    /// # Errors
    /// [`Error::MissingGradient`] where a trained parameter has none; nothing is written then.
    pub fn step_named(&mut self, grads: &Gradients) -> Result<()> {
        let group = self.group.clone();
        self.update(&group.pair_named(grads)?)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SgdConfig {
        &self.config
    }

    /// Sets the learning rate of the steps to come.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        check("lr", lr, 0.0..f64::INFINITY)?;
        self.config.lr = lr;
        Ok(())
    }

    /// All that a bit-exact continuation needs besides the parameters.
    #[must_use]
    pub fn state(&self) -> OptimizerState {
        let SgdConfig { lr, momentum, nesterov, weight_decay, .. } = self.config;
        let nesterov = f64::from(u8::from(nesterov));
        let scalars = [("lr", lr), ("momentum", momentum), ("nesterov", nesterov), ("weight_decay", weight_decay)];
        OptimizerState {
            step: self.step,
            scalars: scalars.map(|(name, value)| (name.to_owned(), value)).into(),
            tensors: prefixed("momentum_buffer", &self.momentum).collect(),
        }
    }

    /// Goes on from `state`, all of it or none.
    pub fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        let config = SgdConfig {
            lr: scalar(state, "lr")?,
            momentum: scalar(state, "momentum")?,
            nesterov: scalar(state, "nesterov")? != 0.0,
            weight_decay: scalar(state, "weight_decay")?,
            ..self.config.clone()
        };
        config.check()?;
        let without = config.momentum == 0.0;
        let moments: &[_] = if without { &[] } else { &["momentum_buffer"] };
        self.group.check_entries(state, &["lr", "momentum", "nesterov", "weight_decay"], moments)?;
        let momentum = if without { IndexMap::new() } else { self.group.moments("momentum_buffer", state)? };
        (self.config, self.step, self.momentum) = (config, state.step, momentum);
        Ok(())
    }

    fn update(&mut self, updates: &[Update<'_>]) -> Result<()> {
        self.step += 1;
        let SgdConfig { lr, momentum, nesterov, weight_decay, .. } = self.config;
        for Update { name, var, grad, decays } in updates {
            let value = var.as_detached_tensor();
            let mut step = grad.detach();
            if *decays && weight_decay != 0.0 {
                step = (step + (&value * weight_decay)?)?;
            }
            if let Some(buffer) = self.momentum.get_mut(*name) {
                let moved = ((&*buffer * momentum)? + &step)?;
                step = if nesterov { (step + (&moved * momentum)?)? } else { moved.clone() };
                *buffer = moved;
            }
            var.set(&(value - (step * lr)?)?)?;
        }
        Ok(())
    }
}

/// Candle's own interface. `new` gets no names: every variable decays and none can be frozen; see [`Sgd::from_varmap`].
impl candle_nn::Optimizer for Sgd {
    type Config = SgdConfig;

    fn new(vars: Vec<Var>, config: SgdConfig) -> candle_core::Result<Self> {
        Ok(Self::from_named(numbered(vars), config)?)
    }

    fn step(&mut self, grads: &GradStore) -> candle_core::Result<()> {
        let group = self.group.clone();
        Ok(self.update(&group.pair_store(grads)?)?)
    }

    fn learning_rate(&self) -> f64 {
        self.config.lr
    }

    fn set_learning_rate(&mut self, lr: f64) {
        self.config.lr = lr;
    }
}
