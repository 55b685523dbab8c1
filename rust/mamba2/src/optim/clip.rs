//! Clipping by the norm of all gradients together.

use crate::error::{Error, Result};
use crate::gradients::Gradients;

/// Scales the parameters' gradients so that their common Euclidean norm is at most `max_norm`, and gives the norm before.
///
/// As `torch.nn.utils.clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)`, at most 1. The norm is summed in f64. A
/// norm that is NaN or infinite goes into the gradients, so that it doesn't go unseen.
pub fn clip_grad_norm(grads: &mut Gradients, max_norm: f64) -> Result<f64> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(Error::config("max_norm", "a number of at least 0", max_norm));
    }
    let squares: f64 = grads.norms()?.values().map(|norm| norm * norm).sum();
    let total = squares.sqrt();
    let factor = max_norm / (total + 1e-6);
    if factor < 1.0 || factor.is_nan() {
        grads.scale(factor)?;
    }
    Ok(total)
}
