//! Operations on each element, and on pairs of elements.

use candle_core::{DType, Tensor};
use candle_nn::ops;

use super::super::array::Array;
use super::super::case::{Case, Input, Values};

type Unary = (&'static str, Values, fn(&Tensor) -> candle_core::Result<Tensor>, fn(f64) -> f64);
type Binary = (&'static str, fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>, fn(f64, f64) -> f64);

const SIGNED: Values = Values::Floats(-2.0, 2.0);
const POSITIVE: Values = Values::Floats(0.2, 2.0);
/// 0, and numbers on both sides of it and of ±1.
const AT_KINKS: Values = Values::Repeated(&[0.0, 1.0, -1.0, 0.5, -2.0, 2.0]);

pub(super) fn cases() -> Vec<Case> {
    let unary: [Unary; 25] = [
        ("exp", SIGNED, Tensor::exp, f64::exp),
        ("log", POSITIVE, Tensor::log, f64::ln),
        ("sqrt", POSITIVE, Tensor::sqrt, f64::sqrt),
        ("sqr", SIGNED, Tensor::sqr, |x| x * x),
        ("recip", POSITIVE, Tensor::recip, f64::recip),
        ("powf(3)", SIGNED, |x| x.powf(3.0), |x| x * x * x),
        ("powf(-0.5)", POSITIVE, |x| x.powf(-0.5), |x| 1.0 / x.sqrt()),
        ("neg", SIGNED, Tensor::neg, |x| -x),
        ("abs", SIGNED, Tensor::abs, f64::abs),
        ("sin", SIGNED, Tensor::sin, f64::sin),
        ("cos", SIGNED, Tensor::cos, f64::cos),
        ("tanh", SIGNED, Tensor::tanh, f64::tanh),
        ("sigmoid", SIGNED, ops::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ("hard_sigmoid", SIGNED, ops::hard_sigmoid, |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
        ("silu", SIGNED, Tensor::silu, |x| x / (1.0 + (-x).exp())),
        ("gelu", SIGNED, Tensor::gelu, gelu),
        ("gelu_erf", SIGNED, Tensor::gelu_erf, |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))),
        ("erf", SIGNED, Tensor::erf, erf),
        ("relu", SIGNED, Tensor::relu, |x| x.max(0.0)),
        ("leaky_relu", SIGNED, |x| ops::leaky_relu(x, 0.1), |x| if x > 0.0 { x } else { 0.1 * x }),
        ("elu", SIGNED, |x| x.elu(0.5), |x| if x > 0.0 { x } else { 0.5 * x.exp_m1() }),
        ("affine", SIGNED, |x| x.affine(1.5, -0.25), |x| 1.5 * x - 0.25),
        ("clamp", SIGNED, |x| x.clamp(-1.0, 1.0), |x| x.clamp(-1.0, 1.0)),
        ("softplus as log(1 + exp(x))", SIGNED, |x| (x.exp()? + 1.0)?.log(), |x| x.exp().ln_1p()),
        ("to_dtype, f32 and back", SIGNED, |x| x.to_dtype(DType::F32)?.to_dtype(x.dtype()), |x| x),
    ];
    let kinks: [Unary; 3] = [
        ("relu, at 0", AT_KINKS, Tensor::relu, |x| x.max(0.0)),
        ("abs, at 0", AT_KINKS, Tensor::abs, f64::abs),
        ("clamp, at its bounds", AT_KINKS, |x| x.clamp(-1.0, 1.0), |x| x.clamp(-1.0, 1.0)),
    ];
    let binary: [Binary; 10] = [
        ("add", |a, b| a.add(b), |a, b| a + b),
        ("sub", |a, b| a.sub(b), |a, b| a - b),
        ("mul", |a, b| a.mul(b), |a, b| a * b),
        ("div", |a, b| a.div(b), |a, b| a / b),
        ("maximum", |a, b| a.maximum(b), f64::max),
        ("minimum", |a, b| a.minimum(b), f64::min),
        ("broadcast_add", |a, b| a.broadcast_add(b), |a, b| a + b),
        ("broadcast_sub", |a, b| a.broadcast_sub(b), |a, b| a - b),
        ("broadcast_mul", |a, b| a.broadcast_mul(b), |a, b| a * b),
        ("broadcast_div", |a, b| a.broadcast_div(b), |a, b| a / b),
    ];
    let ties: [Binary; 2] =
        [("maximum, at ties", |a, b| a.maximum(b), f64::max), ("minimum, at ties", |a, b| a.minimum(b), f64::min)];
    let mut cases: Vec<_> = unary.into_iter().map(one).collect();
    cases.extend(kinks.into_iter().map(|case| one(case).at_kinks()));
    cases.extend(binary.into_iter().map(two));
    cases.extend(ties.into_iter().map(tied));
    cases
}

fn one((name, values, forward, by_hand): Unary) -> Case {
    let inputs = move |batch| vec![Input::new("x", [batch, 3, 4]).holding(values)];
    Case::new(name, inputs, move |x| forward(&x[0]), move |x| x[0].map(by_hand))
}

fn two((name, forward, by_hand): Binary) -> Case {
    let stretches = name.starts_with("broadcast");
    let inputs = move |batch| {
        let rhs: Vec<usize> = if stretches { vec![3, 1] } else { vec![batch, 3, 4] };
        vec![Input::new("lhs", [batch, 3, 4]), Input::new("rhs", rhs).holding(POSITIVE)]
    };
    let reference = move |x: &[Array]| Array::from_fn(x[0].dims.clone(), |i| by_hand(x[0].at(i), x[1].stretched(i)));
    Case::new(name, inputs, move |x| forward(&x[0], &x[1]), reference)
}

fn tied((name, forward, by_hand): Binary) -> Case {
    let inputs = |batch| {
        let other = Values::Repeated(&[0.0, 2.0, -1.0, 0.25, -2.0, 1.0]);
        vec![Input::new("lhs", [batch, 3, 4]).holding(AT_KINKS), Input::new("rhs", [batch, 3, 4]).holding(other)]
    };
    Case::new(name, inputs, move |x| forward(&x[0], &x[1]), move |x| x[0].zip(&x[1], by_hand)).at_kinks()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

/// By its power series, which converges everywhere; below 3 no digit that matters cancels.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}
