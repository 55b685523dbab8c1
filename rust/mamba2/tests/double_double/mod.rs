//! Double-double arithmetic (Dekker 1971), right to some 30 digits.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number as the sum of two, the second at most half a unit in the last place of the first.
#[derive(Clone, Copy)]
pub struct Dd(pub f64, pub f64);

const LN_2: Dd = Dd(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);

impl Dd {
    /// x + y, for |x| ≥ |y|.
    fn normal(x: f64, y: f64) -> Self {
        let sum = x + y;
        // An infinite or denormal-free sum has no rest worth keeping.
        Self(sum, if sum.is_finite() { y - (sum - x) } else { 0.0 })
    }

    /// exp(self) − 1 by its Taylor series, for |self| ≤ 0.36.
    fn exp_m1_small(self) -> Self {
        let mut sum = Self::from(1.0);
        for k in (2..28).rev() {
            sum = self * sum / Self::from(f64::from(k)) + 1.0;
        }
        self * sum
    }

    /// exp(x) · 2^shift.
    pub fn exp(x: f64, shift: i32) -> Self {
        let x = x.clamp(-1000.0, 1000.0);
        let n = (x / std::f64::consts::LN_2).round();
        if n.is_nan() {
            return Self::from(x);
        }
        let scale = (n + f64::from(shift)).exp2();
        let e = (Self::from(x) - LN_2 * n).exp_m1_small() + 1.0;
        Self(e.0 * scale, e.1 * scale)
    }

    /// 1/(1 + exp(-x)) · 2^shift, shift 0 unless x < -300.
    pub fn sigmoid(x: f64, shift: i32) -> Self {
        match x {
            ..-1000.0 => Self::from(0.0),
            ..-300.0 => Self::exp(x, shift),
            300.0.. => Self::from(1.0),
            _ => Self::from(1.0) / (Self::exp(-x, 0) + 1.0),
        }
    }

    /// ln(1 + self): the standard library's value and one Newton step.
    pub fn ln_1p(self) -> Self {
        if self.0 > 1e280 {
            // The step's exp could overflow.
            let small = Self(self.0 * 2_f64.powi(-64), self.1 * 2_f64.powi(-64));
            return if self.0.is_finite() { small.ln_1p() + LN_2 * 64.0 } else { self };
        }
        let y = self.0.ln_1p();
        if !y.is_finite() || y.abs() < 1e-200 {
            return Self(y, self.1);
        }
        let e = if y.abs() < 0.35 { Self::from(y).exp_m1_small() } else { Self::exp(y, 0) - 1.0.into() };
        (self - e) / (e + 1.0) + y
    }
}

impl From<f64> for Dd {
    fn from(x: f64) -> Self {
        Self(x, 0.0)
    }
}

impl Add for Dd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        let part = sum - self.0;
        let rest = (self.0 - (sum - part)) + (other.0 - part);
        Self::normal(sum, rest + (self.1 + other.1))
    }
}

impl Add<f64> for Dd {
    type Output = Self;

    fn add(self, other: f64) -> Self {
        self + Self::from(other)
    }
}

impl Neg for Dd {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0, -self.1)
    }
}

impl Sub for Dd {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Dd {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = self.0 * other.0;
        let rest = self.0.mul_add(other.0, -product);
        Self::normal(product, rest + (self.0 * other.1 + self.1 * other.0))
    }
}

impl Mul<f64> for Dd {
    type Output = Self;

    fn mul(self, other: f64) -> Self {
        self * Self::from(other)
    }
}

impl Div for Dd {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let first = self.0 / other.0;
        let rest = self - other * first;
        Self::normal(first, rest.0 / other.0)
    }
}
