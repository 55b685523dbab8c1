//! CPU kernels: plain functions on slices, generic over f32 and f64, forward and backward.
pub mod core;
pub mod core_backward;
pub mod core_forward;
mod conv;
mod gated_norm;
pub mod linear;
pub mod math;
mod matrix;
pub mod measure;
mod pack;
mod parallel;
pub mod real;
pub mod rms_norm;
mod rows;
mod scratch;
pub mod simd;
mod ssd;
mod ssd_backward;
pub mod step;
mod tile;

use crate::error::{Error, Result};

/// Which form of the mixer computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// The fused kernels on a CPU, else Candle's operations.
    #[default]
    Auto,
    /// The fused kernels; a CPU only.
    Fused,
    /// Candle's operations.
    Composed,
}

impl Kernels {
    /// Whether the fused kernels compute on this device.
    ///
    /// # Errors
    /// [`Error::Config`] where they are asked for and the device isn't a CPU.
    pub(crate) fn fused(self, on_cpu: bool) -> Result<bool> {
        match self {
            Self::Fused if !on_cpu => Err(Error::config("kernels", "'auto' or 'composed' on a device other than a CPU", "fused")),
            Self::Composed => Ok(false),
            _ => Ok(on_cpu),
        }
    }
}
