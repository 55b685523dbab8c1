//! RMS norm of rows, as it stands before each mixer and after the last (docs/mamba2.md, "LM").

use pulp::{Simd, WithSimd};

use super::gated_norm::reciprocal_root;
use super::parallel::{Shared, Threads, Unfilled};
use super::real::Real;
use super::rows::dot3_wide;
use super::simd;
use std::mem::MaybeUninit;

/// Rows of a task.
const ROWS: usize = 64;

/// `x / √(mean(x²) + eps) · weight`: weight (width).
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a, T> {
    /// (width).
    pub weight: &'a [T],
    /// Epsilon inside the root.
    pub eps: f64,
}

impl<T: Real> RmsNorm<'_, T> {
    /// x (rows, width) -> the same shape.
    #[must_use]
    pub fn forward(&self, x: &[T]) -> Vec<T> {
        let mut y = Unfilled::new(x.len());
        let out = Shared::new(y.slots());
        let size = ROWS * self.weight.len();
        Threads::Many.each(x.len().div_ceil(size), |task| {
            let part = task * size..((task + 1) * size).min(x.len());
            // SAFETY: each task has its own rows.
            let y = unsafe { out.part(part.clone()) };
            simd::run(Forward { norm: *self, x: &x[part], y });
        });
        // SAFETY: the tasks have filled it.
        unsafe { y.filled() }
    }

    /// x and dy (rows, width) -> the gradients to x and to the weight.
    #[must_use]
    pub fn backward(&self, x: &[T], dy: &[T]) -> (Vec<T>, Vec<T>) {
        let width = self.weight.len();
        let size = ROWS * width;
        let ntasks = x.len().div_ceil(size);
        let mut dx = Unfilled::new(x.len());
        let mut partial = vec![T::ZERO; ntasks * width];
        let (out, sums) = (Shared::new(dx.slots()), Shared::new(&mut partial));
        Threads::Many.each(ntasks, |task| {
            let part = task * size..((task + 1) * size).min(x.len());
            // SAFETY: each task has its own rows and sums.
            let (dx, d_weight) = unsafe { (out.part(part.clone()), sums.part(task * width..(task + 1) * width)) };
            simd::run(Backward { norm: *self, x: &x[part.clone()], dy: &dy[part], dx, d_weight });
        });
        let mut d_weight = vec![0.0; width];
        for partial in partial.chunks_exact(width) {
            for (sum, more) in d_weight.iter_mut().zip(partial) {
                *sum += more.to_f64();
            }
        }
        // SAFETY: the tasks have filled it.
        (unsafe { dx.filled() }, d_weight.into_iter().map(T::from_f64).collect())
    }
}

struct Forward<'a, T> {
    norm: RmsNorm<'a, T>,
    x: &'a [T],
    y: &'a mut [MaybeUninit<T>],
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let weight = self.norm.weight;
        for (x, y) in self.x.chunks_exact(weight.len()).zip(self.y.chunks_exact_mut(weight.len())) {
            let root = reciprocal_root(x, T::from_f64(self.norm.eps));
            for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
                y.write(x * root * weight);
            }
        }
    }
}

struct Backward<'a, T> {
    norm: RmsNorm<'a, T>,
    x: &'a [T],
    dy: &'a [T],
    dx: &'a mut [MaybeUninit<T>],
    d_weight: &'a mut [T],
}

impl<T: Real> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let weight = self.norm.weight;
        let width = weight.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width)).zip(self.dx.chunks_exact_mut(width));
        for ((x, dy), dx) in rows {
            let root = reciprocal_root(x, T::from_f64(self.norm.eps));
            // In f64: an error here goes along x in every channel, where gradients nearly cancel.
            let wide = root.to_f64();
            let share = dot3_wide(x, dy, weight) * wide * wide / f64::from_usize(width);
            let columns = x.iter().zip(dy).zip(weight).zip(dx).zip(&mut *self.d_weight);
            for ((((&x, &dy), &weight), dx), d_weight) in columns {
                let normed = x * root;
                *d_weight += dy * normed;
                let upstream = dy.to_f64() * weight.to_f64();
                dx.write(T::from_f64((upstream - x.to_f64() * share) * wide));
            }
        }
    }
}
