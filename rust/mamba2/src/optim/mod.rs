//! Optimizers that know their parameters by name: groups, freezing, readable state, no gradient missing.

mod adamw;
mod clip;
mod group;
mod optimizer;
mod sgd;

pub use adamw::AdamWConfig;
pub use clip::clip_grad_norm;
pub use group::DEFAULT_NO_DECAY;
pub use optimizer::{AnyOptimizer, Optimizer, OptimizerState, Rule};
pub use sgd::SgdConfig;

/// AdamW (Loshchilov and Hutter, 2019), step by step as `torch.optim.AdamW` computes it.
pub type AdamW = Optimizer<AdamWConfig>;

/// Stochastic gradient descent with momentum, step by step as `torch.optim.SGD` computes it.
pub type Sgd = Optimizer<SgdConfig>;
