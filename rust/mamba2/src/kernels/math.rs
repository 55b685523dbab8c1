//! The elementary functions of the kernels, for loops that the compiler vectorises.
//!
//! The standard library's functions are calls, one element at a time. These are branch-free expressions of additions,
//! multiplications, divisions, selects and integer operations that every vector unit has (no table, no conversion
//! between integer and float, no 64-bit arithmetic shift), so a plain loop over slices inside
//! [`Simd::vectorize`] compiles to packed code.
//!
//! Errors are held over the whole range, with fused multiply-add and without, by tests/math.rs.

// The coefficients read as they were computed.
#![allow(clippy::unreadable_literal)]
// Out of line, the caller's instruction set would not reach them.
#![allow(clippy::inline_always)]
// Of constants, all of them small.
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, clippy::cast_sign_loss)]

use pulp::Simd;

/// Elementary functions, branch-free, so that loops over slices of them vectorise.
///
/// `S` only tells whether a fused multiply-add is at hand; call them inside its `vectorize`.
///
/// All give NaN for NaN. What lies below the smallest normal number is right to a few of the smallest denormals.
pub trait Math: Copy + Sized {
    /// The exponential: infinity where it overflows, gradually 0 where it underflows. At most 2 ulp.
    #[must_use]
    fn exp<S: Simd>(self) -> Self;

    /// `ln(1 + x)`: -inf at -1, NaN below, x itself for ±0 and infinity. At most 2 ulp.
    #[must_use]
    fn ln_1p<S: Simd>(self) -> Self;

    /// `1 / (1 + exp(-x))`. At most 4 ulp.
    #[must_use]
    fn sigmoid<S: Simd>(self) -> Self;

    /// `x · sigmoid(x)`; NaN at -inf, as in torch. At most 4 ulp.
    #[must_use]
    fn silu<S: Simd>(self) -> Self;

    /// silu and its derivative `s·(1 + x·(1 − s))`, s the sigmoid; the derivative is NaN at both infinities, as in
    /// torch. At most 4 ulp, the derivative's counted in those of s where s is larger, which is around its zero.
    #[must_use]
    fn silu_and_slope<S: Simd>(self) -> (Self, Self);

    /// `ln(1 + exp(x))`, the identity above 20, as in torch. At most 4 ulp.
    #[must_use]
    fn softplus<S: Simd>(self) -> Self;

    /// The derivative of [`softplus`](Self::softplus): `exp(x) / (1 + exp(x))`, 1 above 20. At most 4 ulp.
    #[must_use]
    fn softplus_slope<S: Simd>(self) -> Self;
}

/// The functions of one type, from the constants beside the invocation:
///
/// - `LN2_HI + LN2_LO`: ln 2; the first with so few digits that its products with exponents are exact;
/// - `EXP`: minimax coefficients of exp(r) − 1 − r on [-ln(2)/2, ln(2)/2], from r² on;
/// - `ATANH`: those of 2·atanh(s)/s − 2 in s², for |s| up to (√2 − 1)/(√2 + 1), from s² on.
macro_rules! implement {
    ($float:ident, $bits:ident) => {
        const MANTISSA: u32 = $float::MANTISSA_DIGITS - 1;
        const BIAS: $bits = $float::MAX_EXP as $bits - 1;

        /// Its last place is worth 1: a sum with it is rounded to an integer, which then is in the low bits.
        /// The bias of two exponents on top keeps that integer positive.
        const ROUND: $float = 1.5 / $float::EPSILON + (2 * BIAS) as $float;

        /// Beyond, exp is 0 after rounding.
        const LOWEST: $float = ($float::MIN_EXP - $float::MANTISSA_DIGITS as i32 - 2) as $float * LN_2;
        /// Beyond, exp has long overflowed. Here, `power` of the first half of the exponent is the largest power of two,
        /// and of its negative, 0.
        const HIGHEST: $float = (2 * BIAS) as $float * LN_2;

        const FOUR: $float = 4.0;
        /// Its last place is worth 1, and its low bits are 0: an `or` adds a small integer.
        const ONES: $float = 1.0 / $float::EPSILON;

        /// Above it, softplus is the identity (torch's threshold).
        const THRESHOLD: $float = 20.0;

        #[inline(always)]
        fn fused<S: Simd>(a: $float, b: $float, c: $float) -> $float {
            // Without the instruction, mul_add is a slow library function.
            if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
        }

        /// The polynomial of these coefficients in x, the constant first, given x² = z.
        ///
        /// Horner's scheme for even and odd powers apart: half as long a chain of operations that wait for each other.
        #[inline(always)]
        fn polynomial<S: Simd, const N: usize>(x: $float, z: $float, coefficients: [$float; N]) -> $float {
            let (mut last, mut other) = (coefficients[N - 1], coefficients[N - 2]);
            let mut i = N - 2;
            while i > 0 {
                i -= 1;
                (last, other) = (other, fused::<S>(last, z, coefficients[i]));
            }
            fused::<S>(last, x, other)
        }

        #[inline(always)]
        fn clamp(x: $float, lowest: $float, highest: $float) -> $float {
            // In this form, one instruction each and NaN stays, unlike in f32::clamp or f32::max.
            let x = if x < lowest { lowest } else { x };
            if x > highest { highest } else { x }
        }

        /// 2 to the power of `biased` − BIAS; 0 for 0.
        #[inline(always)]
        fn power(biased: $bits) -> $float {
            $float::from_bits(biased << MANTISSA)
        }

        /// exp(x) = p · 2^(i − BIAS) · 2^(j − BIAS) as (p, i, j), for x within LOWEST and HIGHEST or NaN.
        ///
        /// Two powers, as one would overflow or lose digits before the product with p, or with p and x, does. The
        /// reduction is Cody and Waite's (Software Manual for the Elementary Functions, 1980, chapter 6).
        #[inline(always)]
        fn exp_parts<S: Simd>(x: $float) -> ($float, $bits, $bits) {
            let rounded = fused::<S>(x, LOG2_E, ROUND);
            let n = rounded - ROUND;
            let r = fused::<S>(n, -LN2_LO, fused::<S>(n, -LN2_HI, x));
            // Higher bits than those of i and j are shifted out by `power`.
            let i = rounded.to_bits() >> 1;
            let z = r * r;
            let p = 1.0 + fused::<S>(z, polynomial::<S, _>(r, z, EXP), r);
            (p, i, rounded.to_bits().wrapping_sub(i))
        }

        #[inline(always)]
        fn exp_between<S: Simd>(x: $float, lowest: $float, highest: $float) -> $float {
            let (p, i, j) = exp_parts::<S>(clamp(x, lowest, highest));
            p * power(i) * power(j)
        }

        /// (a, b) such that the sigmoid of x is a / (a + b): a = 2^-k, b = exp(-x) · 2^-k.
        ///
        /// With k half the exponent of exp(-x), neither over- nor underflows before the sigmoid is 1 or 0. Below -HIGHEST
        /// a is 0, so that times a even the largest x gives 0, and only infinity NaN.
        #[inline(always)]
        fn sigmoid_parts<S: Simd>(x: $float) -> ($float, $float) {
            // Unlike -x, which the compiler moves into the selects, a subtraction leaves them one instruction each.
            let (p, i, j) = exp_parts::<S>(0.0 - clamp(x, -HIGHEST, -LOWEST));
            (power((2 * BIAS).wrapping_sub(i)), p * power(j))
        }

        /// ln(1 + x) for finite x above -1.
        ///
        /// 1 + x = 2^k·(1 + f) with 1 + f in [√½, √2]. f comes from x, not from the rounded 1 + x, so it has all its
        /// digits (N. Juffa's log1p). Then ln(1 + f) = 2·atanh(s) with s = f / (2 + f), written around f − f²/2 as in
        /// Sun's fdlibm, which keeps the division's rounding error small.
        #[inline(always)]
        fn ln_1p_finite<S: Simd>(x: $float) -> $float {
            let above = (1.0 + x).to_bits().wrapping_sub(SQRT_HALF.to_bits());
            let exponent = above & ($bits::MAX << MANTISSA);
            // 4·2^-k, as 2^-k can be denormal.
            let scale = $float::from_bits(FOUR.to_bits().wrapping_sub(exponent));
            // Subtracting what is +0 for k = 0, here and below, keeps the sign of x = -0.
            let f = 0.25 * fused::<S>(x, scale, -(FOUR - scale));
            // −k: the exponent in the last places of 2^MANTISSA.
            let k = $float::from_bits(scale.to_bits() >> MANTISSA | ONES.to_bits()) - (ONES + (BIAS + 2) as $float);

            let s = f / (2.0 + f);
            let z = s * s;
            let half = 0.5 * f * f;
            let rest = s * fused::<S>(z, polynomial::<S, _>(z, z * z, ATANH), half);
            fused::<S>(k, -LN2_HI, f - (half - fused::<S>(k, -LN2_LO, rest)))
        }

        impl Math for $float {
            #[inline(always)]
            fn exp<S: Simd>(self) -> Self {
                exp_between::<S>(self, LOWEST, HIGHEST)
            }

            #[inline(always)]
            fn ln_1p<S: Simd>(self) -> Self {
                let y = ln_1p_finite::<S>(self);
                let beyond = if self < -1.0 { $float::NAN } else { $float::NEG_INFINITY };
                let y = if self <= -1.0 { beyond } else { y };
                // Infinity and NaN take the second.
                if self < $float::INFINITY { y } else { self }
            }

            #[inline(always)]
            fn sigmoid<S: Simd>(self) -> Self {
                let (a, b) = sigmoid_parts::<S>(self);
                a / (a + b)
            }

            #[inline(always)]
            fn silu<S: Simd>(self) -> Self {
                let (a, b) = sigmoid_parts::<S>(self);
                // In this order, as a alone can make denormal what x makes normal again.
                self / (a + b) * a
            }

            #[inline(always)]
            fn silu_and_slope<S: Simd>(self) -> (Self, Self) {
                let (a, b) = sigmoid_parts::<S>(self);
                let r = 1.0 / (a + b);
                let y = self * r;
                // (s − xs·s) + xs for negative x, as the roundings of xs·(1 − s) would add up there; else s + xs·(1 − s),
                // with 1 − s from b, for its digits where it is small.
                let (factor, rest) = if self < 0.0 { (-(a * r), y) } else { (b * r, 0.0) };
                (y * a, (fused::<S>(y, factor, r) + rest) * a)
            }

            #[inline(always)]
            fn softplus<S: Simd>(self) -> Self {
                let y = ln_1p_finite::<S>(exp_between::<S>(self, LOWEST, THRESHOLD));
                // NaN takes the second.
                if self <= THRESHOLD { y } else { self }
            }

            #[inline(always)]
            fn softplus_slope<S: Simd>(self) -> Self {
                let y = self.sigmoid::<S>();
                if self > THRESHOLD { 1.0 } else { y }
            }
        }
    };
}

mod single {
    use std::f32::consts::{FRAC_1_SQRT_2 as SQRT_HALF, LN_2, LOG2_E};

    use super::{Math, Simd};

    const LN2_HI: f32 = 0.69314575; // 15 bits
    const LN2_LO: f32 = 1.4286068e-06;

    /// Degree 6, relative error below 2^-27.9 (Remez, rounded to f32).
    const EXP: [f32; 5] = [0.49999994, 0.16666521, 0.04166839, 0.008368717, 0.0013814596];

    /// Degree 3 in s², error below 2^-30 of 2 (Remez, rounded to f32).
    const ATANH: [f32; 3] = [0.66666776, 0.39977542, 0.2987173];

    implement!(f32, u32);
}

mod double {
    use std::f64::consts::{FRAC_1_SQRT_2 as SQRT_HALF, LN_2, LOG2_E};

    use super::{Math, Simd};

    const LN2_HI: f64 = 0.6931471805598903; // 42 bits
    const LN2_LO: f64 = 5.497923018708371e-14;

    /// Degree 11, relative error below 2^-56.3 (Remez, rounded to f64).
    const EXP: [f64; 10] = [
        0.5000000000000011,
        0.16666666666666413,
        0.041666666666530155,
        0.008333333333494472,
        0.0013888888943630264,
        0.00019841269506560774,
        2.4801493098700975e-05,
        2.7557586386765752e-06,
        2.7630248463652823e-07,
        2.5000058318903707e-08,
    ];

    /// Degree 7 in s², error below 2^-58.9 of 2 (Remez, rounded to f64).
    const ATANH: [f64; 7] = [
        0.6666666666666734,
        0.39999999999414676,
        0.28571428742387583,
        0.2222219857318736,
        0.18183564326283788,
        0.15314050538001264,
        0.1479594994293459,
    ];

    implement!(f64, u64);
}
