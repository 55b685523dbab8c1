//! Softmax, normalisations, rotary embeddings and attention.

use candle_core::{D, DType, Tensor};
use candle_nn::{GroupNorm, LayerNorm, Module, RmsNorm, ops, rotary_emb};

use super::super::array::Array;
use super::super::case::{Case, Input, Values};

const EPS: f64 = 1e-5;

pub(super) fn cases() -> Vec<Case> {
    let x = |batch| vec![Input::new("x", [batch, 3, 4])];
    let scaled = |batch| vec![Input::new("x", [batch, 3, 4]), Input::new("weight", [4]).always_contiguous()];
    let shifted = |batch| {
        let parameter = |name| Input::new(name, [4]).always_contiguous();
        vec![Input::new("x", [batch, 3, 4]), parameter("weight"), parameter("bias")]
    };
    let rotated = |batch| {
        let angle = |name| Input::new(name, [3, 2]).always_contiguous();
        vec![Input::new("x", [batch, 2, 3, 4]), angle("cos"), angle("sin")]
    };
    vec![
        Case::new("softmax", x, |x| ops::softmax(&x[0], D::Minus1), |x| x[0].rows(softmax)),
        Case::new(
            "softmax, middle dimension",
            x,
            |x| ops::softmax(&x[0], 1),
            |x| swapped(&swapped(&x[0]).rows(softmax)),
        ),
        Case::new("softmax_last_dim", x, |x| ops::softmax_last_dim(&x[0]), |x| x[0].rows(softmax)),
        Case::new(
            "log_softmax",
            x,
            |x| ops::log_softmax(&x[0], D::Minus1),
            |x| x[0].rows(|row| softmax(row).iter().map(|p| p.ln()).collect()),
        ),
        Case::new("RmsNorm::forward", scaled, |x| RmsNorm::new(x[1].clone(), EPS).forward(&x[0]), rms_norm),
        Case::new("RmsNorm::forward_diff", scaled, |x| RmsNorm::new(x[1].clone(), EPS).forward_diff(&x[0]), rms_norm),
        Case::new("ops::rms_norm", scaled, |x| ops::rms_norm(&x[0], &x[1], 1e-5), rms_norm),
        Case::new("ops::rms_norm_slow", scaled, |x| ops::rms_norm_slow(&x[0], &x[1], 1e-5), rms_norm),
        Case::new(
            "LayerNorm::forward",
            shifted,
            |x| LayerNorm::new(x[1].clone(), x[2].clone(), EPS).forward(&x[0]),
            layer_norm,
        ),
        Case::new(
            "LayerNorm::forward, no bias",
            scaled,
            |x| LayerNorm::new_no_bias(x[1].clone(), EPS).forward(&x[0]),
            layer_norm,
        ),
        Case::new("ops::layer_norm", shifted, |x| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5), layer_norm),
        Case::new("ops::layer_norm_slow", shifted, |x| ops::layer_norm_slow(&x[0], &x[1], &x[2], 1e-5), layer_norm),
        Case::new(
            "GroupNorm",
            |batch| {
                let parameter = |name| Input::new(name, [4]).always_contiguous();
                vec![Input::new("x", [batch, 4, 3]), parameter("weight"), parameter("bias")]
            },
            |x| GroupNorm::new(x[1].clone(), x[2].clone(), 4, 2, EPS)?.forward(&x[0]),
            |x| {
                let groups = Array { dims: vec![x[0].dims[0], 2, 6], data: x[0].data.clone() }.rows(standardised);
                let whole = Array { dims: x[0].dims.clone(), data: groups.data };
                Array::from_fn(whole.dims.clone(), |i| whole.at(i) * x[1].at(&[i[1]]) + x[2].at(&[i[1]]))
            },
        ),
        Case::new("rotary_emb::rope", rotated, |x| rotary_emb::rope(&x[0], &x[1], &x[2]), rope),
        Case::new("rotary_emb::rope_slow", rotated, |x| rotary_emb::rope_slow(&x[0], &x[1], &x[2]), rope),
        Case::new("rotary_emb::rope_i", rotated, |x| rotary_emb::rope_i(&x[0], &x[1], &x[2]), rope_i),
        Case::new("rotary_emb::rope_i_slow", rotated, |x| rotary_emb::rope_i_slow(&x[0], &x[1], &x[2]), rope_i),
        Case::new("ops::sdpa", qkv, |x| ops::sdpa(&x[0], &x[1], &x[2], None, false, 0.5, 1.0), attention),
        Case::new("attention by matmul and softmax", qkv, attend, attention),
        Case::new(
            "PReLU",
            |batch| vec![Input::new("x", [batch, 3, 4]), Input::new("weight", [1]).always_contiguous()],
            |x| candle_nn::PReLU::new(x[1].clone(), true).forward(&x[0]),
            |x| x[0].map(|v| if v > 0.0 { v } else { v * x[1].at(&[0]) }),
        ),
        Case::new(
            "masked softmax by where_cond",
            |batch| vec![Input::new("x", [batch, 3, 4]), Input::new("mask", [batch, 3, 4]).holding(Values::Mask)],
            |x| {
                let floor = Tensor::full(-1e9_f32, x[0].shape(), x[0].device())?.to_dtype(x[0].dtype())?;
                ops::softmax(&x[1].where_cond(&x[0], &floor)?, D::Minus1)
            },
            |x| x[1].zip(&x[0], |keep, x| if keep == 0.0 { -1e9 } else { x }).rows(softmax),
        ),
        Case::new(
            "mean in f64 and back",
            x,
            |x| x[0].to_dtype(DType::F64)?.mean(1)?.to_dtype(x[0].dtype()),
            |x| {
                let count = f64::from(3);
                Array::from_fn([x[0].dims[0], 4], |i| (0..3).map(|t| x[0].at(&[i[0], t, i[1]])).sum::<f64>() / count)
            },
        ),
    ]
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<_> = row.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

/// The last two dimensions of three, swapped.
fn swapped(x: &Array) -> Array {
    Array::from_fn([x.dims[0], x.dims[2], x.dims[1]], |i| x.at(&[i[0], i[2], i[1]]))
}

#[allow(clippy::cast_precision_loss)] // a handful
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn standardised(row: &[f64]) -> Vec<f64> {
    let centre = mean(row.iter().copied());
    let spread = (mean(row.iter().map(|x| (x - centre).powi(2))) + EPS).sqrt();
    row.iter().map(|x| (x - centre) / spread).collect()
}

/// x, weight, and a bias where there is one.
fn layer_norm(x: &[Array]) -> Array {
    let normed = x[0].rows(standardised);
    let bias = |i: &[usize]| x.get(2).map_or(0.0, |bias| bias.stretched(i));
    Array::from_fn(normed.dims.clone(), |i| normed.at(i) * x[1].stretched(i) + bias(i))
}

fn rms_norm(x: &[Array]) -> Array {
    let normed = x[0].rows(|row| {
        let root = (mean(row.iter().map(|x| x * x)) + EPS).sqrt();
        row.iter().map(|x| x / root).collect()
    });
    Array::from_fn(normed.dims.clone(), |i| normed.at(i) * x[1].stretched(i))
}

/// Pairs half a row apart.
fn rope(x: &[Array]) -> Array {
    let half = x[1].dims[1];
    Array::from_fn(x[0].dims.clone(), |i| {
        let (cos, sin) = (x[1].at(&[i[2], i[3] % half]), x[2].at(&[i[2], i[3] % half]));
        let other = |at| x[0].at(&[i[0], i[1], i[2], at]);
        if i[3] < half {
            other(i[3]) * cos - other(i[3] + half) * sin
        } else {
            other(i[3]) * cos + other(i[3] - half) * sin
        }
    })
}

/// Neighbouring pairs.
fn rope_i(x: &[Array]) -> Array {
    Array::from_fn(x[0].dims.clone(), |i| {
        let (cos, sin) = (x[1].at(&[i[2], i[3] / 2]), x[2].at(&[i[2], i[3] / 2]));
        let other = |at| x[0].at(&[i[0], i[1], i[2], at]);
        if i[3] % 2 == 0 {
            other(i[3]) * cos - other(i[3] + 1) * sin
        } else {
            other(i[3]) * cos + other(i[3] - 1) * sin
        }
    })
}

fn qkv(batch: usize) -> Vec<Input> {
    ["q", "k", "v"].map(|name| Input::new(name, [batch, 2, 3, 4])).to_vec()
}

fn attend(x: &[Tensor]) -> candle_core::Result<Tensor> {
    let weights = ops::softmax(&(x[0].matmul(&x[1].t()?)? * 0.5)?, D::Minus1)?;
    weights.matmul(&x[2])
}

fn attention(x: &[Array]) -> Array {
    let (length, width) = (x[0].dims[2], x[0].dims[3]);
    let scores = Array::from_fn([x[0].dims[0], x[0].dims[1], length, length], |i| {
        (0..width).map(|c| x[0].at(&[i[0], i[1], i[2], c]) * x[1].at(&[i[0], i[1], i[3], c])).sum::<f64>() * 0.5
    });
    let weights = scores.rows(softmax);
    Array::from_fn(x[0].dims.clone(), |i| {
        (0..length).map(|s| weights.at(&[i[0], i[1], i[2], s]) * x[2].at(&[i[0], i[1], s, i[3]])).sum()
    })
}
