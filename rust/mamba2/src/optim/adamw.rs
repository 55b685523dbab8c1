//! The rule of AdamW.

use candle_core::Tensor;

use super::group::{DEFAULT_NO_DECAY, check};
use super::optimizer::Rule;
use crate::error::{Error, Result};

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

impl Rule for AdamWConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..f64::INFINITY)?;
        check("betas[0]", self.betas.0, 0.0..1.0)?;
        check("betas[1]", self.betas.1, 0.0..1.0)?;
        check("eps", self.eps, 0.0..f64::INFINITY)?;
        check("weight_decay", self.weight_decay, 0.0..f64::INFINITY)
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn no_decay(&self) -> &[String] {
        &self.no_decay
    }

    fn freeze(&self) -> &[String] {
        &self.freeze
    }

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        let (beta1, beta2) = self.betas;
        vec![
            ("lr", self.lr),
            ("beta1", beta1),
            ("beta2", beta2),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ]
    }

    fn set_scalar(&mut self, name: &str, value: f64) {
        match name {
            "lr" => self.lr = value,
            "beta1" => self.betas.0 = value,
            "beta2" => self.betas.1 = value,
            "eps" => self.eps = value,
            _ => self.weight_decay = value,
        }
    }

    fn update(&self, step: u64, value: &Tensor, grad: &Tensor, decays: bool, moments: &mut [Tensor]) -> Result<Tensor> {
        let Self { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *self;
        let [exp_avg, exp_avg_sq] = moments else {
            return Err(Error::StateDict("AdamW needs two moments for each parameter".into()));
        };
        let count = i32::try_from(step).unwrap_or(i32::MAX);
        let (correction1, correction2) = (1.0 - beta1.powi(count), 1.0 - beta2.powi(count));
        *exp_avg = ((&*exp_avg * beta1)? + (grad * (1.0 - beta1))?)?;
        *exp_avg_sq = ((&*exp_avg_sq * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?;
        let denominator = ((exp_avg_sq.sqrt()? / correction2.sqrt())? + eps)?;
        let step = ((&*exp_avg / denominator)? * (lr / correction1))?;
        let decayed = if decays { (value * (1.0 - lr * weight_decay))? } else { value.clone() };
        Ok((decayed - step)?)
    }
}
