//! No check says anything about models that are right.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Options, assert_trains, check_gradients, probes};
use candle_core::{D, DType, Result, Tensor};
use candle_nn::{AdamW, Embedding, Module, Optimizer, ParamsAdamW, VarMap, ops};
use common::{CPU, add, bits, linear, noise};

/// Runs every check that the element type allows.
fn all_checks(what: &str, varmap: &VarMap, dtype: DType, loss: impl Fn() -> Result<Tensor>) {
    let before = bits(varmap);
    assert_trains!(loss().unwrap(), *varmap, dtype(dtype));
    probes::initialisation(varmap, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
    probes::staleness(&loss, varmap, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
    if dtype == DType::F64 {
        let strict = Options { relative: 1e-9, ..Options::default() };
        check_gradients(&loss, varmap, &strict).unwrap_or_else(|error| panic!("{what}: {error}"));
        probes::precision(&loss, varmap, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert_eq!(bits(varmap), before, "{what}");
    let mut optimizer = AdamW::new(varmap.all_vars(), ParamsAdamW::default()).unwrap();
    let step = || optimizer.backward_step(&loss()?);
    probes::step(step, varmap, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn a_perceptron() {
    for dtype in [DType::F32, DType::F64] {
        let varmap = VarMap::new();
        let layers =
            [(3, 6), (6, 5), (5, 1)].map(|(from, to)| linear(&varmap, &format!("layer{from}"), from, to, dtype));
        let x = noise(1, &[7, 3], dtype);
        let model = |x: &Tensor| layers[2].forward(&layers[1].forward(&layers[0].forward(x)?.silu()?)?.tanh()?);
        all_checks("perceptron", &varmap, dtype, || model(&x)?.sqr()?.mean_all());
        probes::layout(|inputs| model(&inputs[0]), &[("x", &x)]).unwrap();
    }
}

#[test]
fn an_attention_block() {
    for dtype in [DType::F32, DType::F64] {
        let varmap = VarMap::new();
        // No bias of keys: softmax makes its gradient zero.
        let weight = |name: &str| add(&varmap, name, &[4, 4], dtype);
        let (q, k, v) = (weight("q"), weight("k"), weight("v"));
        let gain = add(&varmap, "norm", &[4], dtype);
        let x = noise(1, &[2, 5, 4], dtype); // (batch, seqlen, features)
        let model = |x: &Tensor| {
            let normed = candle_nn::RmsNorm::new(gain.clone(), 1e-5).forward_diff(x)?;
            let project = |weight: &Tensor| normed.broadcast_matmul(weight);
            let scores = (project(&q)?.matmul(&project(&k)?.t()?.contiguous()?)? * 0.5)?;
            x + ops::softmax(&scores, D::Minus1)?.matmul(&project(&v)?)?
        };
        all_checks("attention", &varmap, dtype, || model(&x)?.sqr()?.mean_all());
        probes::layout(|inputs| model(&inputs[0]), &[("x", &x)]).unwrap();
    }
}

#[test]
fn a_convolution_of_shifted_products() {
    for dtype in [DType::F32, DType::F64] {
        let varmap = VarMap::new();
        let (kernel, bias) = (add(&varmap, "kernel", &[3, 4], dtype), add(&varmap, "bias", &[3, 1], dtype)); // (channels, taps)
        let head = linear(&varmap, "head", 3, 2, dtype);
        let x = noise(1, &[2, 3, 6], dtype); // (batch, channels, seqlen)
        let model = |x: &Tensor| {
            let padded = x.pad_with_zeros(2, 3, 0)?;
            let mut y = bias.broadcast_as(x.shape())?.contiguous()?;
            for tap in 0..4 {
                y = (y + padded.narrow(2, tap, 6)?.broadcast_mul(&kernel.narrow(1, tap, 1)?)?)?;
            }
            head.forward(&y.silu()?.transpose(1, 2)?.contiguous()?)
        };
        all_checks("convolution", &varmap, dtype, || model(&x)?.sqr()?.mean_all());
    }
}

#[test]
fn an_embedding_model() {
    for dtype in [DType::F32, DType::F64] {
        let varmap = VarMap::new();
        let embedding = Embedding::new(add(&varmap, "embedding", &[6, 4], dtype), 4);
        let head = linear(&varmap, "head", 4, 6, dtype);
        let ids = Tensor::new(&[[0_u32, 3, 1], [5, 2, 4]], &CPU).unwrap(); // (batch, seqlen)
        let model = || {
            let logits = head.forward(&embedding.forward(&ids)?.tanh()?)?;
            candle_nn::loss::cross_entropy(&logits.flatten_to(1)?, &ids.flatten_all()?)
        };
        all_checks("embedding", &varmap, dtype, model);
    }
}
