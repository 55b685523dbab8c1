//! Work along rows in blocks of lanes, so that it vectorises and sums have a fixed order.

use pulp::Simd;

use super::real::{Real, lanes};

/// Lanes of a block.
pub(crate) const LANES: usize = 16;

/// Work on neighbouring elements of several rows at once. What it keeps in arrays stays in registers: to slices, the compiler would
/// first have to check that none overlaps another.
pub(crate) trait OnLanes {
    /// The work on `N` elements from `at` on.
    fn lanes<const N: usize>(&mut self, at: usize);
}

/// Runs `work` on all of `len` elements.
#[inline(always)]
pub(crate) fn on_lanes(len: usize, work: &mut impl OnLanes) {
    let whole = len / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        work.lanes::<LANES>(at);
    }
    for at in whole..len {
        work.lanes::<1>(at);
    }
}

/// `N` elements of a row.
#[inline(always)]
pub(crate) fn load<T: Copy, const N: usize>(row: &[T], at: usize) -> [T; N] {
    let row = &row[at..][..N];
    // SAFETY: as many as that.
    unsafe { *row.as_ptr().cast() }
}

/// `N` elements to a row.
#[inline(always)]
pub(crate) fn store<T: Copy, const N: usize>(row: &mut [T], at: usize, elements: [T; N]) {
    row[at..][..N].copy_from_slice(&elements);
}

/// `sum + a ⊙ b`, in vectors: what the compiler makes of a loop over arrays is not always whole ones.
#[inline(always)]
pub(crate) fn fused<S: Simd, T: Real, const N: usize>(simd: S, a: [T; N], b: [T; N], mut sum: [T; N]) -> [T; N] {
    let lanes = lanes::<S, T>();
    if N.is_multiple_of(lanes) {
        for at in (0..N).step_by(lanes) {
            // SAFETY: a vector of each from `at` on lies within N.
            unsafe {
                let a = a.as_ptr().add(at).cast::<T::Vector<S>>().read_unaligned();
                let b = b.as_ptr().add(at).cast::<T::Vector<S>>().read_unaligned();
                let sum = sum.as_mut_ptr().add(at).cast::<T::Vector<S>>();
                sum.write_unaligned(T::times_plus(simd, a, b, sum.read_unaligned()));
            }
        }
    } else {
        for i in 0..N {
            sum[i] = a[i].fma::<S>(b[i], sum[i]);
        }
    }
    sum
}

/// `Σ aᵢ·bᵢ`.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    sum(a, b, T::ZERO, |a, b| a * b)
}

/// The same of long rows: four vectors at a time, fused where the machine can.
#[inline(always)]
pub(crate) fn dot_fused<S: Simd, T: Real>(a: &[T], b: &[T]) -> T {
    const WIDE: usize = 2 * LANES;
    let mut sums = [T::ZERO; WIDE];
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<WIDE>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<WIDE>();
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for i in 0..WIDE {
            sums[i] = a[i].fma::<S>(b[i], sums[i]);
        }
    }
    let (low, high) = sums.split_at(LANES);
    let mut sums: [T; LANES] = std::array::from_fn(|i| low[i] + high[i]);
    for (i, (&a, &b)) in rest_a.iter().zip(rest_b).enumerate() {
        sums[i % LANES] += a * b;
    }
    total(sums)
}

/// `Σ aᵢ·bᵢ` in f64.
#[inline(always)]
pub(crate) fn dot_wide<T: Real>(a: &[T], b: &[T]) -> f64 {
    sum(a, b, 0.0, |a, b| a.to_f64() * b.to_f64())
}

/// `Σ aᵢ·bᵢ·cᵢ` in f64.
#[inline(always)]
pub(crate) fn dot3_wide<T: Real>(a: &[T], b: &[T], c: &[T]) -> f64 {
    let mut sums = [0.0; LANES];
    let (blocks_a, rest_a) = a.as_chunks::<LANES>();
    let (blocks_b, rest_b) = b.as_chunks::<LANES>();
    let (blocks_c, rest_c) = c.as_chunks::<LANES>();
    for ((a, b), c) in blocks_a.iter().zip(blocks_b).zip(blocks_c) {
        for i in 0..LANES {
            sums[i] += a[i].to_f64() * b[i].to_f64() * c[i].to_f64();
        }
    }
    for (((sum, &a), &b), &c) in sums.iter_mut().zip(rest_a).zip(rest_b).zip(rest_c) {
        *sum += a.to_f64() * b.to_f64() * c.to_f64();
    }
    total(sums)
}

#[inline(always)]
fn sum<T: Real, R: Real>(a: &[T], b: &[T], zero: R, product: impl Fn(T, T) -> R) -> R {
    let mut sums = [zero; LANES];
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<LANES>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<LANES>();
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += product(a, b);
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(rest_a).zip(rest_b) {
        *sum += product(a, b);
    }
    total(sums)
}

/// The sum of the lanes, by halves.
#[inline(always)]
pub(crate) fn total<T: Real>(mut sums: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// `to` = `from`, for the short rows of a head: a call of the library's copy would cost more than they do.
#[inline(always)]
pub(crate) fn copy<T: Real>(to: &mut [T], from: &[T]) {
    let (to_blocks, to_rest) = to.as_chunks_mut::<LANES>();
    let (from_blocks, from_rest) = from.as_chunks::<LANES>();
    for (to, from) in to_blocks.iter_mut().zip(from_blocks) {
        *to = *from;
    }
    for (to, &from) in to_rest.iter_mut().zip(from_rest) {
        *to = from;
    }
}
