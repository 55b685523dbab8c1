//! The rule of stochastic gradient descent.

use candle_core::Tensor;

use super::group::{DEFAULT_NO_DECAY, check};
use super::optimizer::Rule;
use crate::error::{Error, Result};

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

impl Rule for SgdConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..f64::INFINITY)?;
        check("momentum", self.momentum, 0.0..f64::INFINITY)?;
        check("weight_decay", self.weight_decay, 0.0..f64::INFINITY)?;
        if self.nesterov && self.momentum == 0.0 {
            return Err(Error::config("nesterov", "False where momentum is 0", self.nesterov));
        }
        Ok(())
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
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        let nesterov = f64::from(u8::from(self.nesterov));
        vec![("lr", self.lr), ("momentum", self.momentum), ("nesterov", nesterov), ("weight_decay", self.weight_decay)]
    }

    fn set_scalar(&mut self, name: &str, value: f64) {
        match name {
            "lr" => self.lr = value,
            "momentum" => self.momentum = value,
            "nesterov" => self.nesterov = value != 0.0,
            _ => self.weight_decay = value,
        }
    }

    fn update(&self, _: u64, value: &Tensor, grad: &Tensor, decays: bool, moments: &mut [Tensor]) -> Result<Tensor> {
        let Self { lr, momentum, nesterov, weight_decay, .. } = *self;
        let mut step = grad.clone();
        if decays && weight_decay != 0.0 {
            step = (step + (value * weight_decay)?)?;
        }
        if let [buffer] = moments {
            *buffer = ((&*buffer * momentum)? + &step)?;
            step = if nesterov { (step + (&*buffer * momentum)?)? } else { buffer.clone() };
        }
        Ok((value - (step * lr)?)?)
    }
}
