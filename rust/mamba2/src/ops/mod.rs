//! Differentiable operations that Candle lacks, each with its gradient.

mod clamp;
mod segment_decay;
mod softplus;
mod with_gradient;

pub use clamp::clamp;
pub use segment_decay::{prefix_decay, segment_decay, suffix_decay};
pub use softplus::softplus;
pub use with_gradient::with_gradient;
