//! Experiments on a whole model that need no look into it: change something, run it, see what follows.
//!
//! | probe | changes | finds |
//! |---|---|---|
//! | [`initialisation`] | nothing | variables of zeros, as `VarBuilder::get` makes them in a `VarMap` |
//! | [`staleness`] | each variable in turn | values derived from a variable and kept from a constructor |
//! | [`precision`] | each variable in turn, by 1e-12 of itself | rounding to a shorter type anywhere on the way |
//! | [`layout`](fn@layout) | how inputs lie in memory | operations that read views wrongly |
//! | [`step`](fn@step) | what the optimizer changes | variables that no optimizer knows, gradients that never arrive |
//!
//! All but [`step`](fn@step) leave the variables as they were, bit by bit, also after errors. What a probe may overlook is
//! said by name: a list of patterns, in which `*` stands for any text, and each of which must fit a variable.

mod initialisation;
mod layout;
mod precision;
mod staleness;
mod step;

pub use initialisation::initialisation;
pub use layout::layout;
pub use precision::precision;
pub use staleness::staleness;
pub use step::step;

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::values::numbers;

/// Runs a model twice on the same values: its results, if they are the same.
fn deterministic(f: &mut impl FnMut() -> candle_core::Result<Tensor>) -> Result<Vec<f64>> {
    let (first, second) = (numbers(&f()?)?, numbers(&f()?)?);
    if same_bits(&first, &second) {
        return Ok(first);
    }
    let difference = first.iter().zip(&second).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    Err(Error::NotDeterministic { difference })
}

fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
