//! The element types of the kernels, and what a vector of them can do.

use std::thread::LocalKey;

use pulp::Simd;

use super::math::Math;
use super::scratch::Pool;

/// f32 or f64.
pub trait Real:
    Math
    + Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + std::fmt::Debug
    + std::iter::Sum
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::ops::MulAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The largest finite number.
    const MAX: Self;
    /// A vector of them in the registers of `S`.
    type Vector<S: Simd>: Copy;

    /// The nearest number.
    #[must_use]
    fn from_f64(x: f64) -> Self;
    /// The same number.
    fn to_f64(self) -> f64;
    /// A count.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // sizes are far below 2^52
    #[inline(always)]
    fn from_usize(n: usize) -> Self {
        Self::from_f64(n as f64)
    }
    /// The square root.
    #[must_use]
    fn sqrt(self) -> Self;

    /// Where workspaces of this type wait for their next use.
    fn pool() -> &'static LocalKey<Pool<Self>>;

    /// All lanes `x`.
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// `a·b`.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a + b`.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a·b + c`, fused where the machine can.
    fn times_plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;

    /// `self·b + c`, fused where the machine can.
    #[inline(always)]
    #[must_use]
    fn fma<S: Simd>(self, b: Self, c: Self) -> Self {
        if S::IS_SCALAR { self * b + c } else { self.fused(b, c) }
    }
    /// `self·b + c` with one rounding: slow where the machine can't.
    #[must_use]
    fn fused(self, b: Self, c: Self) -> Self;
}

macro_rules! real {
    ($T:ident, $V:ident, $splat:ident, $mul:ident, $add:ident, $mul_add:ident) => {
        #[allow(clippy::cast_possible_truncation, clippy::cast_lossless)] // rounding is what is asked for
        impl Real for $T {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const MAX: Self = $T::MAX;
            type Vector<S: Simd> = S::$V;

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as Self
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            fn pool() -> &'static LocalKey<Pool<Self>> {
                thread_local! {
                    static POOL: Pool<$T> = const { Pool::new(Vec::new()) };
                }
                &POOL
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$V {
                simd.$splat(x)
            }
            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$V, b: S::$V) -> S::$V {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$V, b: S::$V) -> S::$V {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn times_plus<S: Simd>(simd: S, a: S::$V, b: S::$V, c: S::$V) -> S::$V {
                simd.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn fused(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
            }
        }
    };
}
real!(f32, f32s, splat_f32s, mul_f32s, add_f32s, mul_add_e_f32s);
real!(f64, f64s, splat_f64s, mul_f64s, add_f64s, mul_add_e_f64s);

/// Lanes of one vector.
#[inline(always)]
pub(crate) const fn lanes<S: Simd, T: Real>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// Elements that are laid out together: rows of packed blocks are padded to a multiple of it, so that each holds whole vectors on
/// every machine.
pub(crate) const fn unit<T>() -> usize {
    64 / size_of::<T>()
}

/// `width` rounded up to whole [`unit`]s.
pub(crate) const fn padded<T>(width: usize) -> usize {
    width.next_multiple_of(unit::<T>())
}
