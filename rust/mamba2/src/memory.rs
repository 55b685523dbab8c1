//! Allocation that fails with an error where a plain one would end the process.
//!
//! Linux hands out more memory than there is and kills who uses it, so a large request is held against what is free.

use candle_core::{DType, Device, Tensor};
use sysinfo::System;

use crate::error::{Error, Result};

/// Requests of fewer bytes are left to the allocator.
const LARGE: usize = 1 << 28;

/// Refuses more bytes than are free; `what` names their use in the error.
pub fn check(bytes: Option<usize>, what: &str) -> Result<()> {
    let bytes = bytes.unwrap_or(usize::MAX);
    if bytes < LARGE || available().is_none_or(|available| bytes <= available) {
        return Ok(());
    }
    Err(Error::OutOfMemory { what: what.into(), bytes })
}

/// An empty vector with room for `elements` numbers.
pub fn reserve<T>(elements: usize, what: &str) -> Result<Vec<T>> {
    let bytes = elements.checked_mul(size_of::<T>());
    check(bytes, what)?;
    let mut values = Vec::new();
    let refused = |_| Error::OutOfMemory { what: what.into(), bytes: bytes.unwrap_or(usize::MAX) };
    values.try_reserve_exact(elements).map_err(refused)?;
    Ok(values)
}

/// A tensor of zeros. One without elements is on the CPU, see [`on_device`].
pub(crate) fn zeros(what: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    if device.is_cpu() {
        drop(reserve::<f64>(elements.unwrap_or(usize::MAX), what)?);
    }
    let device = if elements == Some(0) { &Device::Cpu } else { device };
    Ok(Tensor::zeros(shape, dtype, device)?)
}

/// A tensor on `device`: itself where it is there, or has no elements, since CUDA has no memory of no size.
pub(crate) fn on_device(tensor: &Tensor, device: &Device) -> candle_core::Result<Tensor> {
    if tensor.elem_count() == 0 { Ok(tensor.clone()) } else { tensor.to_device(device) }
}

/// Bytes that this process could still take, in its container or on the machine; None where the system doesn't tell.
fn available() -> Option<usize> {
    let mut system = System::new();
    system.refresh_memory();
    // What a container uses counts reclaimable caches, so its limit is what can be relied on.
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    let free = system.available_memory().saturating_add(system.free_swap()).min(limit);
    usize::try_from(free).ok().filter(|&free| free > 0)
}
