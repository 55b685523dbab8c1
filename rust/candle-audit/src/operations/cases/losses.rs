//! Losses.

use candle_nn::{loss, ops};

use super::super::array::Array;
use super::super::case::{Case, Input, Values};

pub(super) fn cases() -> Vec<Case> {
    let pair = |batch| vec![Input::new("input", [batch, 3, 4]), Input::new("target", [batch, 3, 4])];
    let classes = |batch| {
        let target = Input::new("target", [3 * batch]).holding(Values::Ids(4));
        vec![Input::new("input", [3 * batch, 4]), target]
    };
    vec![
        Case::new(
            "loss::cross_entropy",
            classes,
            |x| loss::cross_entropy(&x[0], &x[1]),
            |x| {
                average(x[0].dims[0], |row| {
                    let line = &x[0].data[4 * row..4 * row + 4];
                    line.iter().map(|v| v.exp()).sum::<f64>().ln() - line[x[1].id(&[row])]
                })
            },
        ),
        Case::new(
            "loss::nll",
            classes,
            |x| loss::nll(&x[0], &x[1]),
            |x| average(x[0].dims[0], |row| -x[0].at(&[row, x[1].id(&[row])])),
        ),
        Case::new(
            "loss::mse",
            pair,
            |x| loss::mse(&x[0], &x[1]),
            |x| average(x[0].data.len(), |at| (x[0].data[at] - x[1].data[at]).powi(2)),
        ),
        Case::new(
            "loss::huber",
            pair,
            |x| loss::huber(&x[0], &x[1], 0.5),
            |x| {
                average(x[0].data.len(), |at| match (x[0].data[at] - x[1].data[at]).abs() {
                    small if small < 0.5 => 0.5 * small * small,
                    large => 0.5 * (large - 0.25),
                })
            },
        ),
        Case::new(
            "loss::binary_cross_entropy_with_logit",
            |batch| {
                let target = Input::new("target", [batch, 3, 4]).holding(Values::Floats(0.1, 0.9));
                vec![Input::new("input", [batch, 3, 4]), target]
            },
            |x| loss::binary_cross_entropy_with_logit(&x[0], &x[1]),
            |x| average(x[0].data.len(), |at| x[0].data[at].exp().ln_1p() - x[1].data[at] * x[0].data[at]),
        ),
        Case::new(
            "ops::swiglu",
            |batch| vec![Input::new("x", [batch, 3, 4])],
            |x| ops::swiglu(&x[0]),
            |x| {
                Array::from_fn([x[0].dims[0], 3, 2], |i| {
                    let (gate, value) = (x[0].at(i), x[0].at(&[i[0], i[1], i[2] + 2]));
                    gate / (1.0 + (-gate).exp()) * value
                })
            },
        ),
    ]
}

#[allow(clippy::cast_precision_loss)] // a handful
fn average(count: usize, f: impl Fn(usize) -> f64) -> Array {
    Array::number((0..count).map(f).sum::<f64>() / count as f64)
}
