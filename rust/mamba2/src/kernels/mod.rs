//! CPU kernels: plain functions on slices, generic over f32 and f64, forward and backward.
//!
//! [`mixer`] is a whole mixer, `by_sequence` the same for small ones; [`core`] is what lies between its projections and says how a sequence goes through; [`linear`] and
//! [`rms_norm`] are the layers around it, [`step`] is one token. Below them: [`math`] and `rows` (elementwise and along rows), `tile`
//! (products in registers), `product` (large ones), `conv`, `gated_norm`, `ssd` and `ssd_backward` (the stages), `pack` (rows of tokens to
//! blocks of heads), `parallel` and `scratch` (threads and memory), `simd` (the instruction set).
//!
//! Work is cut by the problem's shape, so results are the same for any number of threads, and so is what they don't depend on: the
//! memory that is reused, the sequences beside one in its batch.

// What runs in vectors has to be inlined into the function that is compiled for them, see `simd::run`; sizes that the compiler sees
// to be equal are indices of several slices at once.
#![allow(clippy::inline_always, clippy::needless_range_loop)]

mod by_sequence;
mod conv;
pub mod core;
pub mod core_backward;
mod core_backward_rows;
pub mod core_forward;
mod gated_norm;
pub mod linear;
pub mod math;
mod matrix;
pub mod mixer;
mod pack;
mod parallel;
mod product;
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
            Self::Fused if !on_cpu => {
                Err(Error::config("kernels", "'auto' or 'composed' on a device other than a CPU", "fused"))
            }
            Self::Composed => Ok(false),
            _ => Ok(on_cpu),
        }
    }
}
