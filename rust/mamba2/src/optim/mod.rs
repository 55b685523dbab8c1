//! Optimizers that know their parameters by name: groups, freezing, readable state, no gradient missing.

mod adamw;
mod clip;
mod group;
mod sgd;

pub use adamw::{AdamW, AdamWConfig};
pub use clip::clip_grad_norm;
pub use group::{DEFAULT_NO_DECAY, Group, OptimizerState};
pub use sgd::{Sgd, SgdConfig};
