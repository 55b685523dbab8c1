//! The elementary functions of the kernels against references with more digits, each over the whole range of both
//! types, through the best instructions of this machine and through those without fused multiply-add.
//!
//! `cargo test --release -- --nocapture` prints the largest error of each and where it is.

// Of small numbers, and of exact ones.
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::float_cmp)]
// The function under test is to be compiled for the instructions it is called with.
#![allow(clippy::inline_always)]

mod double_double;

use std::fmt::{Debug, LowerExp};
use std::marker::PhantomData;

use mamba2::kernels::math::Math;
use pulp::{Arch, Scalar, Simd, WithSimd};

use double_double::Dd;

/// The largest error of exp and `ln_1p`, in units of the last place.
const BASIC_ULP: f64 = 2.0;
/// That of sigmoid, silu, softplus and the slopes.
const DERIVED_ULP: f64 = 4.0;

/// The exact value, as `value` · 2^-shift so that it keeps its digits where it is denormal or overflows.
struct Exact {
    value: Dd,
    shift: i32,
    /// The unit of the error is the last place of this, shifted too: of `value`, but for silu's slope.
    size: f64,
}

impl Exact {
    fn new(value: impl Into<Dd>, shift: i32) -> Self {
        let value = value.into();
        Self { value, shift, size: value.0 }
    }
}

/// A function under test and its references: in f64 arithmetic for f32, in double-double arithmetic for f64.
trait Function {
    const NAME: &str;
    const BOUND: f64;
    fn at<T: Math, S: Simd>(x: T) -> T;
    fn single(x: f64) -> Exact;
    fn double(x: f64) -> Exact;
}

struct Exp;
impl Function for Exp {
    const NAME: &str = "exp";
    const BOUND: f64 = BASIC_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.exp::<S>()
    }

    fn single(x: f64) -> Exact {
        Exact::new(x.exp(), 0)
    }

    fn double(x: f64) -> Exact {
        let shift = shift(x);
        Exact::new(Dd::exp(x, shift), shift)
    }
}

struct Ln1p;
impl Function for Ln1p {
    const NAME: &str = "ln_1p";
    const BOUND: f64 = BASIC_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.ln_1p::<S>()
    }

    fn single(x: f64) -> Exact {
        Exact::new(x.ln_1p(), 0)
    }

    fn double(x: f64) -> Exact {
        Exact::new(Dd::from(x).ln_1p(), 0)
    }
}

struct Sigmoid;
impl Function for Sigmoid {
    const NAME: &str = "sigmoid";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.sigmoid::<S>()
    }

    fn single(x: f64) -> Exact {
        Exact::new(sigmoid(x), 0)
    }

    fn double(x: f64) -> Exact {
        let shift = shift(x.min(0.0));
        Exact::new(Dd::sigmoid(x, shift), shift)
    }
}

struct Silu;
impl Function for Silu {
    const NAME: &str = "silu";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.silu::<S>()
    }

    fn single(x: f64) -> Exact {
        Exact::new(x * sigmoid(x), 0)
    }

    fn double(x: f64) -> Exact {
        let shift = shift(x.min(0.0));
        Exact::new(Dd::sigmoid(x, shift) * x, shift)
    }
}

struct SiluOfPair;
impl Function for SiluOfPair {
    const NAME: &str = "silu_and_slope.0";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.silu_and_slope::<S>().0
    }

    fn single(x: f64) -> Exact {
        Silu::single(x)
    }

    fn double(x: f64) -> Exact {
        Silu::double(x)
    }
}

struct SiluSlope;
impl Function for SiluSlope {
    const NAME: &str = "silu_and_slope.1";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.silu_and_slope::<S>().1
    }

    fn single(x: f64) -> Exact {
        let s = sigmoid(x);
        let value = s * (1.0 + x * sigmoid(-x));
        Exact { value: value.into(), shift: 0, size: value.abs().max(s) }
    }

    fn double(x: f64) -> Exact {
        let shift = shift(x.min(0.0));
        let s = Dd::sigmoid(x, shift);
        let value = s * (Dd::sigmoid(-x, 0) * x + 1.0);
        Exact { value, shift, size: value.0.abs().max(s.0) }
    }
}

struct Softplus;
impl Function for Softplus {
    const NAME: &str = "softplus";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.softplus::<S>()
    }

    fn single(x: f64) -> Exact {
        Exact::new(if x > 20.0 { x } else { x.exp().ln_1p() }, 0)
    }

    fn double(x: f64) -> Exact {
        let shift = shift(x.min(0.0));
        match shift {
            _ if x > 20.0 => Exact::new(x, 0),
            0 => Exact::new(Dd::exp(x, 0).ln_1p(), 0),
            _ => Exact::new(Dd::exp(x, shift), shift),
        }
    }
}

struct SoftplusSlope;
impl Function for SoftplusSlope {
    const NAME: &str = "softplus_slope";
    const BOUND: f64 = DERIVED_ULP;

    fn at<T: Math, S: Simd>(x: T) -> T {
        x.softplus_slope::<S>()
    }

    fn single(x: f64) -> Exact {
        if x > 20.0 { Exact::new(1.0, 0) } else { Sigmoid::single(x) }
    }

    fn double(x: f64) -> Exact {
        if x > 20.0 { Exact::new(1.0, 0) } else { Sigmoid::double(x) }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The shift under which exp(x) is far from both ends of f64, or 0 where it is anyway.
fn shift(x: f64) -> i32 {
    if x.abs() < 300.0 { 0 } else { -600.0_f64.copysign(x) as i32 }
}

/// What the tests need to know of f32 and f64.
trait Element: Math + Copy + Default + Debug + LowerExp + Into<f64> {
    const NAME: &str;
    const DIGITS: i32;
    const MIN_EXP: i32;
    const MAX_EXP: i32;
    fn exact<F: Function>(self) -> Exact;
    fn points() -> Vec<Self>;
}

impl Element for f32 {
    const NAME: &str = "f32";
    const DIGITS: i32 = f32::MANTISSA_DIGITS as i32;
    const MIN_EXP: i32 = f32::MIN_EXP;
    const MAX_EXP: i32 = f32::MAX_EXP;

    fn exact<F: Function>(self) -> Exact {
        F::single(self.into())
    }

    /// Bit patterns from all floats, positive, negative, infinite and NaN, a prime apart.
    fn points() -> Vec<f32> {
        const STRIDE: usize = 1021;
        (0..=u32::MAX).step_by(STRIDE).map(f32::from_bits).collect()
    }
}

impl Element for f64 {
    const NAME: &str = "f64";
    const DIGITS: i32 = f64::MANTISSA_DIGITS as i32;
    const MIN_EXP: i32 = f64::MIN_EXP;
    const MAX_EXP: i32 = f64::MAX_EXP;

    fn exact<F: Function>(self) -> Exact {
        F::double(self)
    }

    /// Bit patterns from all floats, and more where the functions are neither their argument nor 0 nor infinite.
    fn points() -> Vec<f64> {
        const COUNT: u32 = 20_000;
        // Multiples of the golden ratio fill an interval evenly without repeating low digits.
        let weyl = |i: u32, low: f64, high: f64| low + (f64::from(i) * 0.618_033_988_749_894_8).fract() * (high - low);
        let all = (0..COUNT).map(|i| f64::from_bits(u64::from(i) * (u64::MAX / u64::from(COUNT))));
        let sizes = (0..COUNT).flat_map(|i| [weyl(i, -60.0, 10.0).exp2(), -weyl(i, -60.0, 10.0).exp2()]);
        let wide = (0..COUNT).map(|i| weyl(i, -760.0, 720.0));
        let narrow = (0..COUNT).map(|i| weyl(i, -24.0, 24.0));
        let above_minus_one = (0..COUNT).map(|i| weyl(i, -53.0, 0.0).exp2() - 1.0);
        all.chain(sizes).chain(wide).chain(narrow).chain(above_minus_one).collect()
    }
}

/// F over a slice, in a loop as the kernels have it.
struct Map<'a, T, F>(&'a [T], &'a mut [T], PhantomData<F>);

impl<T: Element, F: Function> WithSimd for Map<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (y, &x) in self.1.iter_mut().zip(self.0) {
            *y = F::at::<T, S>(x);
        }
    }
}

fn best<T: Element, F: Function>(x: &[T]) -> Vec<T> {
    let mut y = vec![T::default(); x.len()];
    Arch::new().dispatch(Map::<T, F>(x, &mut y, PhantomData));
    y
}

fn scalar<T: Element, F: Function>(x: &[T]) -> Vec<T> {
    let mut y = vec![T::default(); x.len()];
    Scalar.vectorize(Map::<T, F>(x, &mut y, PhantomData));
    y
}

/// |got − want| in units of the last place of the wanted size, not below the smallest denormal.
fn error<T: Element>(got: T, want: &Exact) -> f64 {
    let got: f64 = got.into();
    if got.is_nan() || want.value.0.is_nan() {
        return if got.is_nan() && want.value.0.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // Where the exact value rounds to the largest number, infinity is one unit off.
    let overflow = f64::from(T::MAX_EXP + want.shift).exp2();
    let clip = |x: f64| x.clamp(-overflow, overflow);
    let got = clip(got * f64::from(want.shift).exp2());
    if got == clip(want.value.0) && (got.is_infinite() || got.abs() == overflow) {
        return 0.0;
    }
    let exponent = if want.size == 0.0 { i32::MIN } else { clip(want.size).abs().log2().floor() as i32 };
    let unit = f64::from(exponent.max(T::MIN_EXP - 1 + want.shift) - (T::DIGITS - 1)).exp2();
    let error = ((got - clip(want.value.0)) - want.value.1).abs() / unit;
    if error.is_nan() { f64::INFINITY } else { error }
}

fn assert_within<F: Function, T: Element>() {
    let points = T::points();
    let results = [("best", best::<T, F>(&points)), ("scalar", scalar::<T, F>(&points))];
    let mut worst = [(0.0, 0); 2];
    for (i, x) in points.iter().enumerate() {
        let exact = x.exact::<F>();
        for ((_, got), worst) in results.iter().zip(&mut worst) {
            let e = error(got[i], &exact);
            if e > worst.0 {
                *worst = (e, i);
            }
        }
    }
    for ((instructions, got), (e, i)) in results.iter().zip(worst) {
        let (x, got, exact) = (points[i], got[i], points[i].exact::<F>());
        println!("{:16} {} {instructions:6} {e:.3} ulp, at x = {x:e}", F::NAME, T::NAME);
        assert!(
            e <= F::BOUND,
            "{}({x:e}) in {} ({instructions}): got {got:e}, want {:e}: {e:.3} ulp, at most {} allowed",
            F::NAME,
            T::NAME,
            exact.value.0 * f64::from(-exact.shift).exp2(),
            F::BOUND
        );
    }
}

#[test]
fn exp_is_right_to_two_ulp() {
    assert_within::<Exp, f32>();
    assert_within::<Exp, f64>();
}

#[test]
fn ln_1p_is_right_to_two_ulp() {
    assert_within::<Ln1p, f32>();
    assert_within::<Ln1p, f64>();
}

#[test]
fn sigmoid_is_right_to_four_ulp() {
    assert_within::<Sigmoid, f32>();
    assert_within::<Sigmoid, f64>();
}

#[test]
fn silu_is_right_to_four_ulp() {
    assert_within::<Silu, f32>();
    assert_within::<Silu, f64>();
}

#[test]
fn silu_beside_its_slope_is_right_to_four_ulp() {
    assert_within::<SiluOfPair, f32>();
    assert_within::<SiluOfPair, f64>();
}

#[test]
fn slope_of_silu_is_right_to_four_ulp_of_it_or_of_the_sigmoid() {
    assert_within::<SiluSlope, f32>();
    assert_within::<SiluSlope, f64>();
}

#[test]
fn softplus_is_right_to_four_ulp() {
    assert_within::<Softplus, f32>();
    assert_within::<Softplus, f64>();
}

#[test]
fn slope_of_softplus_is_right_to_four_ulp() {
    assert_within::<SoftplusSlope, f32>();
    assert_within::<SoftplusSlope, f64>();
}

/// Exact values, the sign of zeros too, as torch has them. A value is repeated to fill whole vectors.
fn assert_exactly<F: Function, T: Element>(cases: &[(T, T)]) {
    const LANES: usize = 37; // vectors and a remainder
    for &(x, want) in cases {
        for (instructions, got) in [("best", best::<T, F>(&[x; LANES])), ("scalar", scalar::<T, F>(&[x; LANES]))] {
            for got in got {
                let (got, want): (f64, f64) = (got.into(), want.into());
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{}({x:e}) in {} ({instructions}): got {got:e}, want {want:e}",
                    F::NAME,
                    T::NAME
                );
            }
        }
    }
}

macro_rules! edges {
    ($name:ident, $float:ident) => {
        #[test]
        fn $name() {
            const INF: $float = $float::INFINITY;
            const NAN: $float = $float::NAN;
            const MAX: $float = $float::MAX;
            const TINY: $float = $float::MIN_POSITIVE;
            let denormal = $float::from_bits(1);
            assert_exactly::<Exp, $float>(&[
                (0.0, 1.0),
                (-0.0, 1.0),
                (denormal, 1.0),
                (INF, INF),
                (MAX, INF),
                (-INF, 0.0),
                (-MAX, 0.0),
                (NAN, NAN),
            ]);
            assert_exactly::<Ln1p, $float>(&[
                (0.0, 0.0),
                (-0.0, -0.0),
                (denormal, denormal),
                (-denormal, -denormal),
                (TINY, TINY),
                (-1.0, -INF),
                ((-1.0 as $float).next_down(), NAN),
                (-MAX, NAN),
                (-INF, NAN),
                (INF, INF),
                (NAN, NAN),
            ]);
            assert_exactly::<Sigmoid, $float>(&[
                (0.0, 0.5),
                (-0.0, 0.5),
                (INF, 1.0),
                (MAX, 1.0),
                (-INF, 0.0),
                (-MAX, 0.0),
                (NAN, NAN),
            ]);
            let silu = [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (MAX, MAX), (-MAX, -0.0), (-INF, NAN), (NAN, NAN)];
            assert_exactly::<Silu, $float>(&silu);
            assert_exactly::<SiluOfPair, $float>(&silu);
            assert_exactly::<SiluSlope, $float>(&[
                (0.0, 0.5),
                (-0.0, 0.5),
                (MAX, 1.0),
                (INF, NAN),
                (-MAX, -0.0),
                (-INF, NAN),
                (NAN, NAN),
            ]);
            let above = (20.0 as $float).next_up();
            assert_exactly::<Softplus, $float>(&[
                (above, above),
                (MAX, MAX),
                (INF, INF),
                (-MAX, 0.0),
                (-INF, 0.0),
                (NAN, NAN),
            ]);
            assert_exactly::<SoftplusSlope, $float>(&[
                (0.0, 0.5),
                (above, 1.0),
                (MAX, 1.0),
                (INF, 1.0),
                (-MAX, 0.0),
                (-INF, 0.0),
                (NAN, NAN),
            ]);
        }
    };
}

edges!(edges_are_exact_in_f32, f32);
edges!(edges_are_exact_in_f64, f64);
