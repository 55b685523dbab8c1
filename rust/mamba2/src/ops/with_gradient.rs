//! A value computed outside the graph, put into it together with the rule of its gradient.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, bail};

use crate::interrupt;

type Pullback = dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync;

struct WithGradient {
    name: &'static str,
    value: Tensor,
    pullback: Box<Pullback>,
}

/// A tensor that equals `value`, a function of `x` made on detached tensors, with the gradient
/// `pullback(x, value, upstream) -> d_x`.
///
/// Needed where Candle has no such operation, or where its own rule is inexact (ties of a clamp) or wasteful
/// (gradients of constant masks). `value` is contiguous; it is copied once.
pub fn with_gradient(
    name: &'static str,
    x: &Tensor,
    value: Tensor,
    pullback: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    if !x.track_op() {
        return Ok(value);
    }
    x.apply_op1(WithGradient { name, value, pullback: Box::new(pullback) })
}

impl CustomOp1 for WithGradient {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        let (storage, layout) = self.value.storage_and_layout();
        match &*storage {
            Storage::Cpu(storage) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("{}: the value must be on the argument's device", self.name),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        let (storage, layout) = self.value.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("{}: the value must be on the argument's device", self.name),
        }
    }

    fn bwd(&self, x: &Tensor, value: &Tensor, upstream: &Tensor) -> Result<Option<Tensor>> {
        interrupt::check()?;
        (self.pullback)(&x.detach(), &value.detach(), &upstream.detach()).map(Some)
    }
}
