//! A linear layer on the CPU kernels, as one differentiable operation.

use candle_core::{DType, Result, Tensor, WithDType};

use super::joint::joint;
use super::numbers::Numbers;
use crate::kernels::linear::Linear;
use crate::kernels::real::Real;

/// `x·Wᵀ + b`: x (…, in), weight (out, in), bias (out) -> (…, out). x holds at least one row.
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 => run::<f32>(x, weight, bias),
        _ => run::<f64>(x, weight, bias),
    }
}

fn run<T: Real + WithDType>(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let bias = bias.map(Tensor::contiguous).transpose()?;
    let call =
        Call { x: x.detach(), weight: weight.detach(), bias: bias.as_ref().map(Tensor::detach), wants_x: x.track_op() };
    let y = call.with(|linear, x: &[T]| linear.forward(x))?;
    let mut shape = x.dims().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = weight.dim(0)?;
    }
    let pullback = move |upstream: Vec<Option<Tensor>>| call.backward::<T>(&upstream);
    let inputs: Vec<_> = [&x, &weight].into_iter().chain(&bias).collect();
    let outputs = joint("linear", &inputs, vec![(y, shape.into())], Box::new(pullback))?;
    Ok(outputs[0].clone())
}

struct Call {
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    wants_x: bool,
}

impl Call {
    fn with<T: Real + WithDType, R>(&self, work: impl FnOnce(Linear<'_, T>, &[T]) -> R) -> Result<R> {
        let (x, weight) = (Numbers::of(&self.x)?, Numbers::of(&self.weight)?);
        let bias = self.bias.as_ref().map(Numbers::of).transpose()?;
        let bias = bias.as_ref().map(Numbers::slice).transpose()?;
        Ok(work(Linear { weight: weight.slice()?, bias, inputs: self.weight.dim(1)? }, x.slice()?))
    }

    fn backward<T: Real + WithDType>(&self, upstream: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let Some(Some(dy)) = upstream.first() else { return Ok(vec![None; 3]) };
        let dy = dy.contiguous()?;
        let dy = Numbers::of(&dy)?;
        let dy = dy.slice()?;
        let ((d_weight, d_bias), d_x) = self
            .with(|linear, x: &[T]| (linear.backward_parameters(x, dy), self.wants_x.then(|| linear.backward(dy))))?;
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
        let d_x = d_x.map(|d_x| tensor(d_x, &self.x)).transpose()?;
        let d_bias = self.bias.as_ref().map(|bias| tensor(d_bias, bias)).transpose()?;
        Ok(vec![d_x, Some(tensor(d_weight, &self.weight)?), d_bias])
    }
}
