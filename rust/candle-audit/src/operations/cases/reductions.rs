//! Sums, means and extremes along dimensions.

use candle_core::D;

use super::super::array::Array;
use super::super::case::{Case, Input, Values};

pub(super) fn cases() -> Vec<Case> {
    let x = |batch| vec![Input::new("x", [batch, 3, 4])];
    let tied = |batch| vec![Input::new("x", [batch, 3, 4]).holding(Values::Repeated(&[0.5, 0.5, -1.0, 0.0]))];
    vec![
        Case::new("sum, last dimension", x, |x| x[0].sum(D::Minus1), |x| folded(&x[0], 2, sum)),
        Case::new("sum, middle dimension", x, |x| x[0].sum(1), |x| folded(&x[0], 1, sum)),
        Case::new("sum_keepdim", x, |x| x[0].sum_keepdim(1), |x| kept(&folded(&x[0], 1, sum), 1)),
        Case::new("sum_all", x, |x| x[0].sum_all(), |x| Array::number(sum(&x[0].data))),
        Case::new("mean", x, |x| x[0].mean(1), |x| folded(&x[0], 1, mean)),
        Case::new("mean_all", x, |x| x[0].mean_all(), |x| Array::number(mean(&x[0].data))),
        Case::new("var", x, |x| x[0].var(D::Minus1), |x| folded(&x[0], 2, variance)),
        Case::new("max", x, |x| x[0].max(D::Minus1), |x| folded(&x[0], 2, max)),
        Case::new("max, middle dimension", x, |x| x[0].max(1), |x| folded(&x[0], 1, max)),
        Case::new("min", x, |x| x[0].min(D::Minus1), |x| folded(&x[0], 2, |v| -max(&negated(v)))),
        Case::new("max, at ties", tied, |x| x[0].max(D::Minus1), |x| folded(&x[0], 2, max)).at_kinks(),
        Case::new(
            "log_sum_exp",
            x,
            |x| x[0].log_sum_exp(D::Minus1),
            |x| folded(&x[0], 2, |v| v.iter().map(|x| x.exp()).sum::<f64>().ln()),
        ),
        Case::new(
            "cumsum",
            x,
            |x| x[0].cumsum(1),
            |x| Array::from_fn(x[0].dims.clone(), |i| (0..=i[1]).map(|t| x[0].at(&[i[0], t, i[2]])).sum()),
        ),
        Case::new(
            "cumsum, last dimension",
            x,
            |x| x[0].cumsum(D::Minus1),
            |x| Array::from_fn(x[0].dims.clone(), |i| (0..=i[2]).map(|t| x[0].at(&[i[0], i[1], t])).sum()),
        ),
    ]
}

fn folded(x: &Array, dim: usize, f: impl Fn(&[f64]) -> f64) -> Array {
    let mut dims = x.dims.clone();
    let length = dims.remove(dim);
    Array::from_fn(dims, |i| {
        let line: Vec<_> = (0..length).map(|at| x.at(&[&i[..dim], &[at], &i[dim..]].concat())).collect();
        f(&line)
    })
}

fn kept(x: &Array, dim: usize) -> Array {
    let mut dims = x.dims.clone();
    dims.insert(dim, 1);
    Array { dims, data: x.data.clone() }
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

#[allow(clippy::cast_precision_loss)] // a handful
fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

/// Unbiased: by one less than there are.
#[allow(clippy::cast_precision_loss)] // a handful
fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn negated(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| -x).collect()
}
