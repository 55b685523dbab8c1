//! Allocation that fails with an error where a plain one would end the process.
//!
//! Linux hands out more memory than there is and kills who uses it, so a large request is held against what is free.

use candle_core::{DType, Device, Tensor};

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

/// A tensor of zeros.
pub(crate) fn zeros(what: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    if device.is_cpu() {
        let elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        drop(reserve::<f64>(elements.unwrap_or(usize::MAX), what)?);
    }
    Ok(Tensor::zeros(shape, dtype, device)?)
}

/// Bytes that this process could still take, where the system tells.
#[cfg(target_os = "linux")]
fn available() -> Option<usize> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| -> Option<usize> {
        let line = machine.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
    };
    let free = field("MemAvailable:")? + field("SwapFree:").unwrap_or(0);
    // A container's limit, in either version of control groups.
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    Some(limits.iter().filter_map(limit).fold(free, usize::min))
}

#[cfg(not(target_os = "linux"))]
fn available() -> Option<usize> {
    None
}
