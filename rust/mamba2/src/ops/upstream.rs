//! Where a backward pass starts that is given gradients of several tensors.

use candle_core::{DType, Result, Tensor, WithDType};

use super::joint::joint;

/// A zero whose gradient to each of `tensors` is the one it comes with, so that its backward is a vector-Jacobian product.
pub(crate) fn upstream(tensors: &[(&Tensor, &Tensor)]) -> Result<Tensor> {
    match tensors.first().map(|(tensor, _)| tensor.dtype()) {
        Some(DType::F32) => run::<f32>(tensors),
        _ => run::<f64>(tensors),
    }
}

fn run<T: WithDType>(tensors: &[(&Tensor, &Tensor)]) -> Result<Tensor> {
    let inputs: Vec<_> = tensors.iter().map(|(tensor, _)| *tensor).collect();
    let gradients: Vec<_> = tensors.iter().map(|(_, gradient)| Some(gradient.detach())).collect();
    let outputs =
        joint("upstream", &inputs, vec![(vec![T::zero()], 1.into())], Box::new(move |_| Ok(gradients.clone())))?;
    Ok(outputs[0].clone())
}
