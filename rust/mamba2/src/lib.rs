//! Mamba-2 on Candle: forward, backward, states and training, verified against `PyTorch` in fp64.
//!
//! Data goes one way: [`model`] owns a `VarMap` and a [`network::Network`]; [`forecaster`] and [`mixer`] are such networks;
//! a mixer is two projections around [`composed::mixer_core`], which is made of Candle's operations and of [`ops`].
//! Gradients come back the same way and leave by name, as [`gradients::Gradients`].
//!
//! Every module is made from a `VarBuilder`, so it can be part of any Candle model; `examples/train.rs` trains one.
//! [`dims`] is the glossary.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use mamba2::{Architecture, Mamba2Config, Model};
//!
//! # fn main() -> mamba2::Result<()> {
//! let config = Mamba2Config { d_state: 16, headdim: 16, ..Mamba2Config::new(32) };
//! let model = Model::new(&Architecture::Mixer(config), DType::F64, &Device::Cpu, 0)?;
//! let u = Tensor::ones((2, 100, 32), DType::F64, &Device::Cpu)?; // (batch, seqlen, d_model)
//! let output = model.forward(&u, None)?;
//! let dy = output.y().ones_like()?; // the upstream gradient of the output; there may be one of the states
//! let gradients = output.backward(&model, &dy, None)?;
//! assert_eq!(gradients.get("A_log").map(Tensor::dims), Some(&[4_usize][..]));
//! # Ok(())
//! # }
//! ```

pub mod block;
pub mod checkpoint;
pub mod composed;
pub mod config;
pub mod dims;
pub mod error;
pub mod files;
pub mod forecaster;
pub mod gradients;
pub mod interrupt;
pub mod kernels;
mod linear;
pub mod loss;
pub mod memory;
pub mod mixer;
pub mod model;
pub mod network;
pub mod ops;
pub mod optim;
pub mod params;
pub mod state;
pub mod tap;
pub mod trace;

pub use config::Mamba2Config;
pub use error::{Error, Result};
pub use forecaster::{Mamba2Forecaster, Mamba2ForecasterConfig};
pub use gradients::Gradients;
pub use kernels::Kernels;
pub use mixer::Mamba2;
pub use model::{Architecture, Model, Output};
pub use params::{ParamSpec, Parameters};
pub use state::State;
pub use tap::{Fed, Feed, Recording, Taps};

/// The name that numpy and torch give a Candle element type.
#[must_use]
pub fn dtype_name(dtype: candle_core::DType) -> &'static str {
    match dtype {
        candle_core::DType::F32 => "float32",
        candle_core::DType::F64 => "float64",
        candle_core::DType::F16 => "float16",
        candle_core::DType::BF16 => "bfloat16",
        other => other.as_str(),
    }
}
