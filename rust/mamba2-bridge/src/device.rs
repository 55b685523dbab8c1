//! Devices by name. A process has one GPU device, with one stream, and one call at a time works on it.

use std::sync::{Arc, LazyLock};

use candle_core::Device;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use pyo3::prelude::*;

use crate::errors::bridge_error;
use crate::runtime;

/// Made when it is first asked for: every device of Candle's is a context of its own, whose tensors no other takes.
static CUDA: Mutex<Option<Device>> = Mutex::new(None);
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// The device of a name.
pub fn parse(py: Python<'_>, name: &str) -> PyResult<Device> {
    let message = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" | "cuda:0" if cfg!(feature = "cuda") => match cuda() {
            Ok(device) => return Ok(device),
            Err(error) => format!("device {name:?} can't be used: {error}"),
        },
        "cuda" | "cuda:0" => format!("device {name:?} needs a CUDA build; this build has only 'cpu'"),
        _ => format!("device must be 'cpu' or 'cuda:0', got {name:?}"),
    };
    Err(bridge_error(py, "DeviceError", &message))
}

fn cuda() -> Result<Device, mamba2::Error> {
    let mut slot = CUDA.lock();
    if let Some(device) = &*slot {
        return Ok(device.clone());
    }
    // A stream of its own: with the default one, every thread would have another.
    let device = Device::new_cuda_with_stream(0)?;
    *slot = Some(device.clone());
    Ok(device)
}

/// The right to work on the GPU until it is dropped; on the CPU alone nobody needs one.
pub struct Turn {
    device: Device,
    _guard: ArcMutexGuard<RawMutex, ()>,
}

impl Turn {
    /// Waits for what was asked of the GPU, so that its errors are those of the call that caused them.
    pub fn finish(&self) -> candle_core::Result<()> {
        self.device.synchronize()
    }
}

/// Waits until the GPU is free. None where none is in use.
pub fn turn(py: Python<'_>) -> PyResult<Option<Turn>> {
    let Some(device) = CUDA.lock().clone() else { return Ok(None) };
    let guard = runtime::acquire(py, |wait| TURN.try_lock_arc_for(wait))?;
    Ok(Some(Turn { device, _guard: guard }))
}
