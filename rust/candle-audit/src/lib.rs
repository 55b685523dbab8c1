//! Does every variable of a Candle model get a right gradient?
//!
//! Candle leaves out, without a word, every gradient that its backward pass doesn't reach; some of its operations have no backward
//! pass, and the gradients of a few are wrong. Such a model trains without an error and learns nothing, or the wrong thing. This
//! crate finds that, and says the names.
//!
//! | question | ask |
//! |---|---|
//! | Does the loss reach every variable, in one element type, and does each get a gradient? | [`audit()`], [`assert_trains!`] |
//! | Are the gradients right? | [`check_gradients()`] |
//! | Made without initial values? Kept from a constructor? Rounded to f32? Unknown to the optimizer? | [`probes`] |
//! | Which of Candle's own operations can be trusted? | [`operations`] |
//!
//! Where something is wrong, the checks return [`Error::Faults`] with a [`Report`]: a list of [`Finding`]s, and a few readable lines
//! when it's printed. They work on any model whose variables are in a `VarMap`, or come as pairs of name and variable
//! ([`Variables`]).
//!
//! ```
//! use candle_audit::{Options, assert_trains, check_gradients, probes};
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap};
//!
//! # fn main() -> candle_audit::Result<()> {
//! let varmap = VarMap::new();
//! let vb = VarBuilder::from_varmap(&varmap, DType::F64, &Device::Cpu);
//! let hidden = candle_nn::linear(3, 8, vb.pp("hidden"))?;
//! let head = candle_nn::linear(8, 1, vb.pp("head"))?;
//! let x = Tensor::arange(0.0, 6.0, &Device::Cpu)?.affine(0.2, -0.5)?.reshape((2, 3))?; // (batch, features)
//! let loss = || head.forward(&hidden.forward(&x)?.silu()?)?.sqr()?.mean_all();
//!
//! assert_trains!(loss()?, varmap);
//! check_gradients(loss, &varmap, &Options::default())?;
//! probes::initialisation(&varmap, &[])?;
//! probes::staleness(loss, &varmap, &[])?;
//! let mut optimizer = SGD::new(varmap.all_vars(), 0.1)?;
//! probes::step(|| optimizer.backward_step(&loss()?), &varmap, &[])?;
//! # Ok(())
//! # }
//! ```

mod audit;
mod check_gradients;
mod differences;
mod error;
mod finding;
mod graph;
mod macros;
pub mod operations;
pub mod probes;
mod report;
mod values;
mod variables;

pub use audit::{Audit, audit};
pub use check_gradients::{Agreement, Direction, GradientReport, Options, VariableCheck, check_gradients};
pub use error::{Error, Result};
pub use finding::{Finding, Layout, Node};
pub use report::Report;
pub use variables::Variables;
