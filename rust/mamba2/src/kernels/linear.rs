//! Linear layers: the projections around the core.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::Matrix;
use super::parallel::{Shared, Threads, Unfilled};
use super::product::{Right, To, product_into};
use super::real::Real;
use super::rows::dot_fused;
use super::simd;

/// `x·Wᵀ + b`: weight (out, in), bias (out).
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a, T> {
    /// (out, in).
    pub weight: &'a [T],
    /// (out).
    pub bias: Option<&'a [T]>,
    /// Width of the input.
    pub inputs: usize,
}

impl<T: Real> Linear<'_, T> {
    /// Width of the output.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.weight.len() / self.inputs
    }

    /// x (rows, in) -> (rows, out).
    #[must_use]
    pub fn forward(&self, x: &[T]) -> Vec<T> {
        let rows = x.len() / self.inputs;
        if rows <= FEW_ROWS {
            return self.forward_few(x);
        }
        let mut y = product(Matrix::new(x, rows, self.inputs, self.inputs), self.matrix().transposed());
        if let Some(bias) = self.bias {
            for row in y.chunks_exact_mut(bias.len()) {
                add(row, bias);
            }
        }
        y
    }

    /// The same for few rows: each weight is read once and serves all of them.
    fn forward_few(&self, x: &[T]) -> Vec<T> {
        let (rows, outputs) = (x.len() / self.inputs, self.outputs());
        let mut y = vec![T::ZERO; rows * outputs];
        let shared = Shared::new(&mut y);
        Threads::Many.each(outputs.div_ceil(OUTPUTS), |task| {
            let part = task * OUTPUTS..((task + 1) * OUTPUTS).min(outputs);
            simd::run(FewRows { linear: *self, x, part, y: shared });
        });
        y
    }

    /// dy (rows, out) -> the gradient to x (rows, in).
    #[must_use]
    pub fn backward(&self, dy: &[T]) -> Vec<T> {
        product(Matrix::new(dy, dy.len() / self.outputs(), self.outputs(), self.outputs()), self.matrix())
    }

    /// x (rows, in) and dy (rows, out) -> the gradients to weight and bias; that of a bias that isn't there is empty.
    #[must_use]
    pub fn backward_parameters(&self, x: &[T], dy: &[T]) -> (Vec<T>, Vec<T>) {
        let rows = x.len() / self.inputs;
        let dy = Matrix::new(dy, rows, self.outputs(), self.outputs());
        let d_weight = product(dy.transposed(), Matrix::new(x, rows, self.inputs, self.inputs));
        let d_bias = if self.bias.is_some() { simd::run(ColumnSums(dy)) } else { Vec::new() };
        (d_weight, d_bias)
    }

    /// The weight.
    pub(crate) fn matrix(&self) -> Matrix<'_, T> {
        Matrix::new(self.weight, self.outputs(), self.inputs, self.inputs)
    }
}

/// Rows up to which a product is bound by reading the weights.
const FEW_ROWS: usize = 4;

/// Outputs of a task over few rows.
const OUTPUTS: usize = 256;

struct FewRows<'a, T> {
    linear: Linear<'a, T>,
    x: &'a [T],
    part: Range<usize>,
    y: Shared<'a, T>,
}

impl<T: Real> WithSimd for FewRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Linear { weight, bias, inputs } = self.linear;
        for at in self.part {
            let weight = &weight[at * inputs..][..inputs];
            for (row, x) in self.x.chunks_exact(inputs).enumerate() {
                let to = row * self.linear.outputs() + at;
                // SAFETY: each output is accessed by one task alone.
                let y = unsafe { self.y.part(to..to + 1) };
                y[0] = dot_fused::<S, T>(weight, x) + bias.map_or(T::ZERO, |bias| bias[at]);
            }
        }
    }
}

#[inline]
fn add<T: Real>(row: &mut [T], more: &[T]) {
    for (x, &more) in row.iter_mut().zip(more) {
        *x += more;
    }
}

/// Sums of a matrix's columns, in f64.
struct ColumnSums<'a, T>(Matrix<'a, T>);

impl<T: Real> WithSimd for ColumnSums<'_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<T> {
        let mut sums = vec![0.0; self.0.columns()];
        for r in 0..self.0.rows() {
            for (sum, x) in sums.iter_mut().zip(self.0.line(r)) {
                *sum += x.to_f64();
            }
        }
        sums.into_iter().map(T::from_f64).collect()
    }
}

/// `left·right`, row by row, on all threads of the pool.
pub(crate) fn product<T: Real>(left: Matrix<'_, T>, right: Matrix<'_, T>) -> Vec<T> {
    let mut out = Unfilled::new(left.rows() * right.columns());
    product_into(left, Right::Plain(right), out.slots(), To::Fill, Threads::Many);
    // SAFETY: filled by the product.
    unsafe { out.filled() }
}
