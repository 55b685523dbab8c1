//! RMS norm on the CPU kernels, as one differentiable operation.

use candle_core::{DType, Result, Tensor, WithDType};

use super::joint::joint;
use super::numbers::Numbers;
use crate::kernels::real::Real;
use crate::kernels::rms_norm::RmsNorm;

/// `x / √(mean(x²) + eps) · weight`: x (…, width), weight (width) -> x's shape. x holds at least one row.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 => run::<f32>(x, weight, eps),
        _ => run::<f64>(x, weight, eps),
    }
}

fn run<T: Real + WithDType>(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let y = RmsNorm { weight: Numbers::of(&weight)?.slice()?, eps }.forward(Numbers::<T>::of(&x)?.slice()?);
    let values = vec![(y, x.shape().clone())];
    let (input, scale) = (x.detach(), weight.detach());
    let pullback = move |upstream: Vec<Option<Tensor>>| {
        let Some(Some(dy)) = upstream.into_iter().next() else { return Ok(vec![None, None]) };
        let dy = dy.contiguous()?;
        let weight = Numbers::of(&scale)?;
        let norm = RmsNorm { weight: weight.slice()?, eps };
        let (dx, d_weight) = norm.backward(Numbers::of(&input)?.slice()?, Numbers::<T>::of(&dy)?.slice()?);
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device()).map(Some);
        Ok(vec![tensor(dx, &input)?, tensor(d_weight, &scale)?])
    };
    let outputs = joint("rms-norm", &[&x, &weight], values, Box::new(pullback))?;
    Ok(outputs[0].clone())
}
