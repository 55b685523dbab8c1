//! Candle tensors on a CPU as slices.

use std::marker::PhantomData;
use std::ops::Deref;

use candle_core::{Result, Storage, Tensor, WithDType, bail};

/// The numbers of a contiguous tensor, locked for reading.
pub(crate) struct Numbers<'a, T> {
    storage: Box<dyn Deref<Target = Storage> + 'a>,
    start: usize,
    end: usize,
    element: PhantomData<T>,
}

impl<'a, T: WithDType> Numbers<'a, T> {
    /// The numbers of `tensor`.
    pub(crate) fn of(tensor: &'a Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("a tensor of shape {:?} that isn't contiguous", tensor.dims());
        };
        Ok(Self { storage: Box::new(storage), start, end, element: PhantomData })
    }

    /// As a slice.
    pub(crate) fn slice(&self) -> Result<&[T]> {
        match &**self.storage {
            Storage::Cpu(storage) => Ok(&storage.as_slice::<T>()?[self.start..self.end]),
            _ => bail!("the kernels run on a CPU"),
        }
    }
}
