//! The speed of a single product, for benchmarks.

use std::time::Instant;

use super::linear::product_into;
use super::matrix::Matrix;
use super::parallel::{Threads, Unfilled};
use super::real::Real;

/// Seconds of one product (m, k)·(k, n) on all threads of the pool; the result is not filled before. `transposed`: the right operand
/// lies as (n, k).
#[must_use]
pub fn product_seconds<T: Real>(m: usize, k: usize, n: usize, transposed: bool) -> f64 {
    let (left, right) = (vec![T::ONE; m * k], vec![T::ONE; k * n]);
    let right = if transposed { Matrix::new(&right, n, k, k).transposed() } else { Matrix::new(&right, k, n, n) };
    let mut out = Unfilled::new(m * n);
    let started = Instant::now();
    product_into(Matrix::new(&left, m, k, k), right, out.slots(), Threads::Many);
    started.elapsed().as_secs_f64()
}
