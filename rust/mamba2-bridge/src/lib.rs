//! Python bindings of `mamba2`: conversion, one call, conversion. The package's Python files wrap what is here.

mod arrays;
mod audit;
mod config;
mod device;
mod errors;
mod feed;
mod gradients;
mod measure;
mod model;
mod named;
mod optim;
mod output;
mod runtime;
mod state;

use pyo3::prelude::*;

/// Keeps freed memory (`runtime::loaded`): with the system's allocator, long sequences are dominated by page faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The native module: `mamba2_bridge._native_cpu`, or with CUDA `mamba2_bridge_cu13._native_cuda`.
#[cfg_attr(not(feature = "cuda"), pymodule(name = "_native_cpu"))]
#[cfg_attr(feature = "cuda", pymodule(name = "_native_cuda"))]
mod _native {
    #[pymodule_export]
    use crate::audit::{audit, candle_operations};
    #[pymodule_export]
    use crate::config::{ForecasterConfig, MixerConfig};
    #[pymodule_export]
    use crate::gradients::Gradients;
    #[pymodule_export]
    use crate::measure::{gemm_seconds, stage_seconds};
    #[pymodule_export]
    use crate::model::{Model, replace_folder, write_file};
    #[pymodule_export]
    use crate::named::NamedTensors;
    #[pymodule_export]
    use crate::optim::{Optimizer, clip_grad_norm};
    #[pymodule_export]
    use crate::output::{Loss, Output};
    #[pymodule_export]
    use crate::runtime::{get_num_threads, instruction_set, set_num_threads};
    #[pymodule_export]
    use crate::state::Mamba2State;

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::runtime::loaded();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("NO_DECAY", mamba2::optim::DEFAULT_NO_DECAY)
    }
}
