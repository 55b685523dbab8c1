//! The gate and the grouped RMS norm after the scan, one token's row at a time (docs/mamba2.md, step 5).

use pulp::Simd;

use super::real::Real;
use super::rows::{dot_wide, dot3_wide};

/// Which gate and norm. state-spaces' `RMSNormGated`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedNorm<'a, T> {
    /// (width); None: the gate alone.
    pub(crate) weight: Option<&'a [T]>,
    /// Equal parts of a row that are normalised apart.
    pub(crate) groups: usize,
    /// Normalise before the gate rather than after it.
    pub(crate) before_gate: bool,
    pub(crate) eps: T,
}

/// What a row's backward works on, each (width).
pub(crate) struct RowGradients<'a, T> {
    /// To the output; becomes the gradient to y.
    pub(crate) d_out: &'a mut [T],
    /// To z; written.
    pub(crate) d_z: &'a mut [T],
    /// To the weight; added to.
    pub(crate) d_weight: &'a mut [T],
    /// Room for SiLU(z).
    pub(crate) gate: &'a mut [T],
}

impl<T: Real> GatedNorm<'_, T> {
    /// In place on `y` (width), gated by `z` (width); `roots` (groups) receives the reciprocal roots of the mean squares.
    #[inline(always)]
    pub(crate) fn forward<S: Simd>(&self, y: &mut [T], z: &[T], roots: &mut [T]) {
        let Some(weight) = self.weight else {
            for (y, &z) in y.iter_mut().zip(z) {
                *y *= z.silu::<S>();
            }
            return;
        };
        let size = y.len() / self.groups;
        if !self.before_gate {
            for (y, &z) in y.iter_mut().zip(z) {
                *y *= z.silu::<S>();
            }
        }
        let rows = y.chunks_exact_mut(size).zip(weight.chunks_exact(size)).zip(roots);
        for ((y, weight), root) in rows {
            *root = reciprocal_root(y, self.eps);
            for (y, &weight) in y.iter_mut().zip(weight) {
                *y = *y * *root * weight;
            }
        }
        if self.before_gate {
            for (y, &z) in y.iter_mut().zip(z) {
                *y *= z.silu::<S>();
            }
        }
    }

    /// Gradients of one row of `y`, `z` and `roots`: those of `row`.
    #[inline(always)]
    pub(crate) fn backward<S: Simd>(&self, y: &[T], z: &[T], roots: &[T], row: RowGradients<'_, T>) {
        let RowGradients { d_out, d_z, d_weight, gate } = row;
        let n = y.len();
        let (z, gate, d_z, d_out) = (&z[..n], &mut gate[..n], &mut d_z[..n], &mut d_out[..n]);
        for i in 0..n {
            (gate[i], d_z[i]) = z[i].silu_and_slope::<S>();
        }
        let Some(weight) = self.weight else {
            for i in 0..n {
                d_z[i] = d_z[i] * d_out[i] * y[i];
                d_out[i] *= gate[i];
            }
            return;
        };
        let size = n / self.groups;
        for (group, &root) in roots.iter().enumerate() {
            let part = group * size..(group + 1) * size;
            let (y, gate, weight) = (&y[part.clone()], &gate[part.clone()], &weight[part.clone()]);
            let (d_out, d_z, d_weight) = (&mut d_out[part.clone()], &mut d_z[part.clone()], &mut d_weight[part]);
            if self.before_gate {
                for i in 0..size {
                    let normed = y[i] * root;
                    let upstream = d_out[i];
                    d_weight[i] += upstream * normed * gate[i];
                    d_z[i] = d_z[i] * upstream * normed * weight[i];
                    d_out[i] = upstream * weight[i] * gate[i];
                }
                // In f64, as below: an error here goes along y in every channel, where gradients nearly cancel.
                let root = root.to_f64();
                let share = dot_wide(d_out, y) * root * root / f64::from_usize(size);
                for i in 0..size {
                    d_out[i] = T::from_f64((d_out[i].to_f64() - y[i].to_f64() * share) * root);
                }
            } else {
                for i in 0..size {
                    let normed = y[i] * gate[i] * root;
                    d_weight[i] += d_out[i] * normed;
                    d_out[i] *= weight[i];
                }
                let root = root.to_f64();
                let share = dot3_wide(d_out, y, gate) * root * root / f64::from_usize(size);
                for i in 0..size {
                    let gated = y[i].to_f64() * gate[i].to_f64();
                    let d_gated = T::from_f64((d_out[i].to_f64() - gated * share) * root);
                    d_z[i] = d_z[i] * d_gated * y[i];
                    d_out[i] = d_gated * gate[i];
                }
            }
        }
    }
}

/// `1/√(mean(x²) + eps)`.
#[inline(always)]
pub(crate) fn reciprocal_root<T: Real>(x: &[T], eps: T) -> T {
    T::from_f64(1.0 / (dot_wide(x, x) / f64::from_usize(x.len()) + eps.to_f64()).sqrt())
}
