//! Decays inside a segment: between all pairs of positions, from its start, to its end.
//!
//! Each exponent is a sum of its own terms, formed by a product with a triangle of ones: a difference of two cumulative
//! sums would lose the digits of `dA_log` (docs/mamba2.md, "Chunked"). So is each gradient: for every k the sum over what it lies
//! between, never a running sum of differences.

use candle_core::{DType, Device, Result, Tensor};

use super::{matmul, with_gradient};

/// `L[i, j] = exp(Σ_{j<k≤i} a_k)` for i ≥ j, else 0: a (rows, t) -> (rows, t, t). Paper, section 5.1 ("1-SS" matrices).
pub fn segment_decay(a: &Tensor) -> Result<Tensor> {
    let (rows, t) = a.dims2()?;
    let upto = triangle(t, a, |i, k| k <= i)?;
    let after = triangle(t, a, |k, j| k > j)?;
    let masked = a.detach().unsqueeze(1)?.broadcast_mul(&upto)?; // (rows, i, k)
    let exponents = matmul(&masked.reshape((rows * t, t))?, &after)?.reshape((rows, t, t))?;
    let value = exponents.exp()?.broadcast_mul(&upto)?;
    with_gradient("segment_decay", a, value, move |_, decay, upstream| {
        let d_exponents = upstream.mul(decay)?; // (rows, i, j), zero above the diagonal
        let d_masked = matmul(&d_exponents.reshape((rows * t, t))?, &after.t()?)?.reshape((rows, t, t))?;
        d_masked.broadcast_mul(&upto)?.sum(1)
    })
}

/// `exp(Σ_{k≤i} a_k)`: (rows, t) -> (rows, t).
pub fn prefix_decay(a: &Tensor) -> Result<Tensor> {
    exp_of_sums("prefix_decay", a, triangle(a.dim(1)?, a, |k, i| k <= i)?)
}

/// `exp(Σ_{k>i} a_k)`: (rows, t) -> (rows, t).
pub fn suffix_decay(a: &Tensor) -> Result<Tensor> {
    exp_of_sums("suffix_decay", a, triangle(a.dim(1)?, a, |k, i| k > i)?)
}

fn exp_of_sums(name: &'static str, a: &Tensor, terms: Tensor) -> Result<Tensor> {
    let value = matmul(&a.detach(), &terms)?.exp()?;
    with_gradient(name, a, value, move |_, decay, upstream| matmul(&upstream.mul(decay)?, &terms.t()?))
}

/// (t, t) of `like`'s type: 1 where `one(row, column)`, else 0.
fn triangle(t: usize, like: &Tensor, one: impl Fn(usize, usize) -> bool) -> Result<Tensor> {
    let (dtype, device): (DType, &Device) = (like.dtype(), like.device());
    let values: Vec<f32> = (0..t * t).map(|at| f32::from(u8::from(one(at / t, at % t)))).collect();
    Tensor::from_vec(values, (t, t), device)?.to_dtype(dtype)
}
