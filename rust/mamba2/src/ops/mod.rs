//! Differentiable operations that Candle lacks, each with its gradient.

mod clamp;
mod joint;
mod linear;
mod matmul;
mod mixer;
mod numbers;
mod rms_norm;
mod segment_decay;
pub(crate) mod sink;
mod softplus;
mod upstream;
mod with_gradient;

pub use clamp::clamp;
pub(crate) use linear::linear;
pub(crate) use matmul::matmul;
pub(crate) use mixer::{Mixer, mixer};
pub(crate) use rms_norm::rms_norm;
pub use segment_decay::{prefix_decay, segment_decay, suffix_decay};
pub use softplus::softplus;
pub(crate) use upstream::upstream;
pub use with_gradient::with_gradient;
