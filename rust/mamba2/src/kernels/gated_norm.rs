//! The gate and the grouped RMS norm after the scan, one token's row at a time (docs/mamba2.md, step 5).

use std::marker::PhantomData;

use pulp::Simd;

use super::real::Real;
use super::rows::{LANES, OnLanes, dot_wide, load, on_lanes, store, total};

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
            return gate::<S, T>(y, z);
        };
        let size = y.len() / self.groups;
        if !self.before_gate {
            gate::<S, T>(y, z);
        }
        let rows = y.chunks_exact_mut(size).zip(weight.chunks_exact(size)).zip(roots);
        for ((y, weight), root) in rows {
            *root = reciprocal_root(y, self.eps);
            for (y, &weight) in y.iter_mut().zip(weight) {
                *y = *y * *root * weight;
            }
        }
        if self.before_gate {
            gate::<S, T>(y, z);
        }
    }

    /// Gradients of one row of `y`, `z` and `roots`: those of `row`.
    #[inline(always)]
    pub(crate) fn backward<S: Simd>(&self, y: &[T], z: &[T], roots: &[T], row: RowGradients<'_, T>) {
        let RowGradients { d_out, d_z, d_weight, gate } = row;
        let n = y.len();
        let (z, gate, d_z, d_out) = (&z[..n], &mut gate[..n], &mut d_z[..n], &mut d_out[..n]);
        on_lanes(n, &mut GateSlopes::<S, T> { y, z, gate, d_z, simd: PhantomData });
        let Some(weight) = self.weight else {
            for i in 0..n {
                d_z[i] *= d_out[i];
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
                    let upstream = d_out[i];
                    d_weight[i] += upstream * y[i] * root * gate[i];
                    d_z[i] = d_z[i] * upstream * root * weight[i];
                    d_out[i] = upstream * weight[i] * gate[i];
                }
                let share = Share::new(dot_wide(d_out, y), root, size);
                on_lanes(size, &mut Remove::<S, T> { share, y, d_out, simd: PhantomData });
            } else {
                let mut weighted = Weighted { y, gate, weight, root, d_out, d_weight, dots: [0.0; LANES] };
                on_lanes(size, &mut weighted);
                let share = Share::new(total(weighted.dots), root, size);
                on_lanes(size, &mut RemoveGated::<S, T> { share, y, gate, d_out, d_z, simd: PhantomData });
            }
        }
    }
}

/// `y ⊙ SiLU(z)` in place.
#[inline(always)]
fn gate<S: Simd, T: Real>(y: &mut [T], z: &[T]) {
    struct Gate<'a, S, T> {
        y: &'a mut [T],
        z: &'a [T],
        simd: PhantomData<S>,
    }
    impl<S: Simd, T: Real> OnLanes for Gate<'_, S, T> {
        #[inline(always)]
        fn lanes<const N: usize>(&mut self, at: usize) {
            let (mut y, z): ([T; N], [T; N]) = (load(self.y, at), load(self.z, at));
            for i in 0..N {
                y[i] *= z[i].silu::<S>();
            }
            store(self.y, at, y);
        }
    }
    on_lanes(y.len(), &mut Gate::<S, T> { y, z, simd: PhantomData });
}

/// `gate = SiLU(z)` and `d_z = y ⊙ SiLU'(z)`.
struct GateSlopes<'a, S, T> {
    y: &'a [T],
    z: &'a [T],
    gate: &'a mut [T],
    d_z: &'a mut [T],
    simd: PhantomData<S>,
}

impl<S: Simd, T: Real> OnLanes for GateSlopes<'_, S, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let (y, z): ([T; N], [T; N]) = (load(self.y, at), load(self.z, at));
        let (mut gate, mut d_z) = ([T::ZERO; N], [T::ZERO; N]);
        for i in 0..N {
            let (value, slope) = z[i].silu_and_slope::<S>();
            gate[i] = value;
            d_z[i] = y[i] * slope;
        }
        store(self.gate, at, gate);
        store(self.d_z, at, d_z);
    }
}

/// Before the norm's backward where it comes after the gate: its weight, and the dot of gradient and input.
struct Weighted<'a, T> {
    y: &'a [T],
    gate: &'a [T],
    weight: &'a [T],
    root: T,
    d_out: &'a mut [T],
    d_weight: &'a mut [T],
    dots: [f64; LANES],
}

impl<T: Real> OnLanes for Weighted<'_, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let (y, gate, weight): ([T; N], [T; N], [T; N]) =
            (load(self.y, at), load(self.gate, at), load(self.weight, at));
        let (mut d_out, mut d_weight): ([T; N], [T; N]) = (load(self.d_out, at), load(self.d_weight, at));
        for i in 0..N {
            let gated = y[i] * gate[i];
            d_weight[i] += d_out[i] * gated * self.root;
            d_out[i] *= weight[i];
            self.dots[(at + i) % LANES] += d_out[i].to_f64() * gated.to_f64();
        }
        store(self.d_out, at, d_out);
        store(self.d_weight, at, d_weight);
    }
}

/// What a norm's backward takes out of the gradient, along its input x: `d_x = root · (d − x · share)`.
///
/// In two parts, for all digits of f64: what it loses goes along x in every channel, where gradients nearly cancel.
#[derive(Clone, Copy)]
struct Share<T> {
    high: T,
    low: T,
    root: T,
}

impl<T: Real> Share<T> {
    /// From the dot of gradient and input.
    #[inline(always)]
    fn new(dot: f64, root: T, size: usize) -> Self {
        let share = dot * root.to_f64() * root.to_f64() / f64::from_usize(size);
        let high = T::from_f64(share);
        Self { high, low: T::from_f64(share - high.to_f64()), root }
    }

    #[inline(always)]
    fn removed<S: Simd>(self, d: T, x: T) -> T {
        (-x).fma::<S>(self.low, (-x).fma::<S>(self.high, d)) * self.root
    }
}

/// The norm's backward on `d_out`.
struct Remove<'a, S, T> {
    share: Share<T>,
    y: &'a [T],
    d_out: &'a mut [T],
    simd: PhantomData<S>,
}

impl<S: Simd, T: Real> OnLanes for Remove<'_, S, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let (y, mut d_out): ([T; N], [T; N]) = (load(self.y, at), load(self.d_out, at));
        for i in 0..N {
            d_out[i] = self.share.removed::<S>(d_out[i], y[i]);
        }
        store(self.d_out, at, d_out);
    }
}

/// The same and the gate's.
struct RemoveGated<'a, S, T> {
    share: Share<T>,
    y: &'a [T],
    gate: &'a [T],
    d_out: &'a mut [T],
    d_z: &'a mut [T],
    simd: PhantomData<S>,
}

impl<S: Simd, T: Real> OnLanes for RemoveGated<'_, S, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let (y, gate): ([T; N], [T; N]) = (load(self.y, at), load(self.gate, at));
        let (mut d_out, mut d_z): ([T; N], [T; N]) = (load(self.d_out, at), load(self.d_z, at));
        for i in 0..N {
            let d_gated = self.share.removed::<S>(d_out[i], y[i] * gate[i]);
            d_z[i] *= d_gated;
            d_out[i] = d_gated * gate[i];
        }
        store(self.d_out, at, d_out);
        store(self.d_z, at, d_z);
    }
}

/// `1/√(mean(x²) + eps)`.
#[inline(always)]
pub(crate) fn reciprocal_root<T: Real>(x: &[T], eps: T) -> T {
    T::from_f64(1.0 / (dot_wide(x, x) / f64::from_usize(x.len()) + eps.to_f64()).sqrt())
}
