//! `AdamW` (Loshchilov and Hutter, 2019), step by step as `torch.optim.AdamW` computes it.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use indexmap::IndexMap;

use super::group::{DEFAULT_NO_DECAY, Group, OptimizerState, Update, check, numbered, prefixed, scalar, sorted};
use crate::error::Result;
use crate::gradients::Gradients;

/// Hyperparameters; the defaults are torch's.
#[derive(Debug, Clone)]
pub struct AdamWConfig {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Glob patterns of the names that get no weight decay.
    pub no_decay: Vec<String>,
    /// Glob patterns of the names that are not trained.
    pub freeze: Vec<String>,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            no_decay: DEFAULT_NO_DECAY.map(String::from).to_vec(),
            freeze: Vec::new(),
        }
    }
}

impl AdamWConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..f64::INFINITY)?;
        check("betas[0]", self.betas.0, 0.0..1.0)?;
        check("betas[1]", self.betas.1, 0.0..1.0)?;
        check("eps", self.eps, 0.0..f64::INFINITY)?;
        check("weight_decay", self.weight_decay, 0.0..f64::INFINITY)
    }
}

/// The optimizer. Scalars are f64, moments have their parameter's element type.
#[derive(Debug, Clone)]
pub struct AdamW {
    group: Group,
    config: AdamWConfig,
    step: u64,
    exp_avg: IndexMap<String, Tensor>,
    exp_avg_sq: IndexMap<String, Tensor>,
}

impl AdamW {
    /// An optimizer of named variables.
    pub fn from_named(vars: impl IntoIterator<Item = (String, Var)>, config: AdamWConfig) -> Result<Self> {
        config.check()?;
        let group = Group::new(vars, &config.no_decay, &config.freeze)?;
        let (exp_avg, exp_avg_sq) = (group.zeros()?, group.zeros()?);
        Ok(Self { group, config, step: 0, exp_avg, exp_avg_sq })
    }

    /// An optimizer of all variables that are in `varmap` now.
    pub fn from_varmap(varmap: &VarMap, config: AdamWConfig) -> Result<Self> {
        Self::from_named(sorted(varmap), config)
    }

    /// One step with gradients by name.
    ///
    /// # Errors
    /// [`crate::Error::MissingGradient`] where a trained parameter has none; nothing is written then.
    pub fn step_named(&mut self, grads: &Gradients) -> Result<()> {
        let group = self.group.clone();
        self.update(&group.pair_named(grads)?)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &AdamWConfig {
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
        let AdamWConfig { lr, betas, eps, weight_decay, .. } = self.config;
        let scalars =
            [("lr", lr), ("beta1", betas.0), ("beta2", betas.1), ("eps", eps), ("weight_decay", weight_decay)];
        OptimizerState {
            step: self.step,
            scalars: scalars.map(|(name, value)| (name.to_owned(), value)).into(),
            tensors: prefixed("exp_avg", &self.exp_avg).chain(prefixed("exp_avg_sq", &self.exp_avg_sq)).collect(),
        }
    }

    /// Goes on from `state`, all of it or none.
    pub fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        let config = AdamWConfig {
            lr: scalar(state, "lr")?,
            betas: (scalar(state, "beta1")?, scalar(state, "beta2")?),
            eps: scalar(state, "eps")?,
            weight_decay: scalar(state, "weight_decay")?,
            ..self.config.clone()
        };
        config.check()?;
        let scalars = ["lr", "beta1", "beta2", "eps", "weight_decay"];
        self.group.check_entries(state, &scalars, &["exp_avg", "exp_avg_sq"])?;
        let (exp_avg, exp_avg_sq) = (self.group.moments("exp_avg", state)?, self.group.moments("exp_avg_sq", state)?);
        (self.config, self.step, self.exp_avg, self.exp_avg_sq) = (config, state.step, exp_avg, exp_avg_sq);
        Ok(())
    }

    fn update(&mut self, updates: &[Update<'_>]) -> Result<()> {
        self.step += 1;
        let AdamWConfig { lr, betas: (beta1, beta2), eps, weight_decay, .. } = self.config;
        let count = i32::try_from(self.step).unwrap_or(i32::MAX);
        let (correction1, correction2) = (1.0 - beta1.powi(count), 1.0 - beta2.powi(count));
        for Update { name, var, grad, decays } in updates {
            let grad = grad.detach();
            let exp_avg = ((&self.exp_avg[*name] * beta1)? + (&grad * (1.0 - beta1))?)?;
            let exp_avg_sq = ((&self.exp_avg_sq[*name] * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?;
            let denominator = ((exp_avg_sq.sqrt()? / correction2.sqrt())? + eps)?;
            let step = ((&exp_avg / &denominator)? * (lr / correction1))?;
            let decayed = var.as_detached_tensor().affine(if *decays { 1.0 - lr * weight_decay } else { 1.0 }, 0.0)?;
            var.set(&(decayed - step)?)?;
            self.exp_avg.insert((*name).to_owned(), exp_avg);
            self.exp_avg_sq.insert((*name).to_owned(), exp_avg_sq);
        }
        Ok(())
    }
}

/// Candle's own interface. `new` gets no names: every variable decays and none can be frozen; see [`AdamW::from_varmap`].
impl candle_nn::Optimizer for AdamW {
    type Config = AdamWConfig;

    fn new(vars: Vec<Var>, config: AdamWConfig) -> candle_core::Result<Self> {
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
