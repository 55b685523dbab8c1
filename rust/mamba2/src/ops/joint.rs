//! An operation of any number of inputs and outputs: Candle's own take three and give one.
//!
//! Values are made outside the graph and put into it with one rule for all gradients. In the graph the operation is a hub of one
//! number: tracked inputs lead to it in bundles of three, outputs come from it. Gradients travel beside the graph, in slots
//! that bundles, hub and outputs share; what flows along its edges is a single zero.
//!
//! ```text
//! inputs ─ bundle ─┐                 ┌─ output
//! inputs ─ bundle ─┴─ bundle ─ hub ──┴─ output
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor, WithDType, bail,
};

use super::sink;
use crate::interrupt;

/// A value of an operation: its numbers and its shape.
pub(crate) type Value<T> = (Vec<T>, Shape);

/// Gradients of a [`joint`] operation's inputs from those of its outputs. None: nothing reached this output, or nothing is asked for
/// this input.
pub(crate) type Pullback = dyn Fn(Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// Tensors with `values`, functions of `inputs`, with the gradients that `pullback` gives.
///
/// An input's gradient is not added to zeros first, as Candle does it, where it is a variable and [`sink::backward`] runs.
pub(crate) fn joint<T: WithDType>(
    name: &'static str,
    inputs: &[&Tensor],
    values: Vec<Value<T>>,
    pullback: Box<Pullback>,
) -> Result<Vec<Tensor>> {
    let tracked: Vec<_> = (0..inputs.len()).filter(|&at| inputs[at].track_op()).collect();
    if tracked.is_empty() {
        let device = inputs.first().map_or(&Device::Cpu, |input| input.device());
        return values.into_iter().map(|(values, shape)| Tensor::from_vec(values, shape, device)).collect();
    }
    let slots = Arc::new(Slots {
        name,
        upstream: Mutex::new(vec![None; values.len()]),
        gradients: Mutex::new(vec![None; inputs.len()]),
        pullback,
    });
    let mut nodes: Vec<(Tensor, Option<usize>)> = tracked.iter().map(|&at| (inputs[at].clone(), Some(at))).collect();
    while nodes.len() > 1 || nodes.iter().any(|(_, input)| input.is_some()) {
        let bundles = nodes.chunks(3).map(|nodes| bundle::<T>(nodes, &slots)).collect::<Result<Vec<_>>>()?;
        nodes = bundles.into_iter().map(|bundle| (bundle, None)).collect();
    }
    let hub = nodes[0].0.apply_op1(Hub::<T> { slots: slots.clone(), zero: T::zero() })?;
    let outputs = values.into_iter().enumerate().map(|(at, (values, shape))| {
        hub.apply_op1(Output { slots: slots.clone(), at, value: Mutex::new(Some((values, shape))) })
    });
    outputs.collect()
}

/// What the nodes of one operation share.
struct Slots {
    name: &'static str,
    /// Gradients of the outputs.
    upstream: Mutex<Vec<Option<Tensor>>>,
    /// Gradients of the inputs.
    gradients: Mutex<Vec<Option<Tensor>>>,
    pullback: Box<Pullback>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One number, zero: what a node of the graph holds that only stands for others.
fn placeholder<T: WithDType>(zero: T) -> (CpuStorage, Shape) {
    (T::to_cpu_storage_owned(vec![zero]), Shape::from(1))
}

/// The same on the device of `other`.
fn placeholder_beside<T: WithDType>(zero: T, other: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    let (storage, shape) = placeholder(zero);
    Ok((other.device().storage_from_cpu_storage_owned(storage)?, shape))
}

/// Up to three inputs or bundles of them.
struct Bundle<T> {
    slots: Arc<Slots>,
    /// Which inputs these are; None: a bundle.
    inputs: Vec<Option<usize>>,
    zero: T,
}

fn bundle<T: WithDType>(nodes: &[(Tensor, Option<usize>)], slots: &Arc<Slots>) -> Result<Tensor> {
    let op = Bundle { slots: slots.clone(), inputs: nodes.iter().map(|(_, input)| *input).collect(), zero: T::zero() };
    match nodes {
        [(a, _)] => a.apply_op1(op),
        [(a, _), (b, _)] => a.apply_op2(b, op),
        [(a, _), (b, _), (c, _)] => a.apply_op3(b, c, op),
        _ => bail!("a bundle of {} nodes", nodes.len()),
    }
}

impl<T: WithDType> Bundle<T> {
    fn gradient(&self, at: usize, node: &Tensor) -> Result<Option<Tensor>> {
        match self.inputs[at] {
            None => Ok(Some(node.zeros_like()?)),
            Some(input) => {
                let gradient = lock(&self.slots.gradients)[input].take();
                let Some(gradient) = gradient else {
                    // Candle panics where a node that isn't a variable gets none.
                    return if node.is_variable() { Ok(None) } else { Ok(Some(node.zeros_like()?)) };
                };
                Ok(if node.is_variable() { sink::offer(node, gradient)? } else { Some(gradient) })
            }
        }
    }
}

impl<T: WithDType> CustomOp1 for Bundle<T> {
    fn name(&self) -> &'static str {
        self.slots.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok(placeholder(self.zero))
    }

    fn cuda_fwd(&self, a: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        placeholder_beside(self.zero, a)
    }

    fn bwd(&self, a: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        self.gradient(0, a)
    }
}

impl<T: WithDType> CustomOp2 for Bundle<T> {
    fn name(&self) -> &'static str {
        self.slots.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok(placeholder(self.zero))
    }

    fn cuda_fwd(&self, a: &CudaStorage, _: &Layout, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        placeholder_beside(self.zero, a)
    }

    fn bwd(&self, a: &Tensor, b: &Tensor, _: &Tensor, _: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((self.gradient(0, a)?, self.gradient(1, b)?))
    }
}

impl<T: WithDType> CustomOp3 for Bundle<T> {
    fn name(&self) -> &'static str {
        self.slots.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok(placeholder(self.zero))
    }

    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        placeholder_beside(self.zero, a)
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        _: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        Ok((self.gradient(0, a)?, self.gradient(1, b)?, self.gradient(2, c)?))
    }
}

/// Where all inputs have come together: its backward is the operation's, after those of all outputs.
struct Hub<T> {
    slots: Arc<Slots>,
    zero: T,
}

impl<T: WithDType> CustomOp1 for Hub<T> {
    fn name(&self) -> &'static str {
        self.slots.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok(placeholder(self.zero))
    }

    fn cuda_fwd(&self, a: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        placeholder_beside(self.zero, a)
    }

    fn bwd(&self, inputs: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        interrupt::check()?;
        let upstream: Vec<_> = lock(&self.slots.upstream).iter_mut().map(Option::take).collect();
        *lock(&self.slots.gradients) = (self.slots.pullback)(upstream)?;
        inputs.zeros_like().map(Some)
    }
}

/// One output.
struct Output<T> {
    slots: Arc<Slots>,
    at: usize,
    value: Mutex<Option<Value<T>>>,
}

impl<T: WithDType> Output<T> {
    fn take(&self) -> Result<(CpuStorage, Shape)> {
        let Some((values, shape)) = lock(&self.value).take() else { bail!("{}: a second forward", self.slots.name) };
        Ok((T::to_cpu_storage_owned(values), shape))
    }
}

impl<T: WithDType> CustomOp1 for Output<T> {
    fn name(&self) -> &'static str {
        self.slots.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.take()
    }

    fn cuda_fwd(&self, hub: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        let (storage, shape) = self.take()?;
        Ok((hub.device().storage_from_cpu_storage_owned(storage)?, shape))
    }

    fn bwd(&self, hub: &Tensor, _: &Tensor, upstream: &Tensor) -> Result<Option<Tensor>> {
        lock(&self.slots.upstream)[self.at] = Some(upstream.detach());
        hub.zeros_like().map(Some)
    }
}
