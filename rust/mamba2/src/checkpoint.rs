//! Parameters in safetensors files.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::files;
use crate::params::{Incompatible, Parameters};

impl Parameters {
    /// Writes all parameters to `path`, with `metadata` in the file's header. The file is replaced as a whole or not at all.
    pub fn save(&self, path: &Path, metadata: HashMap<String, String>) -> Result<()> {
        let tensors: Vec<_> = self.iter().map(|(name, var)| (name, var.as_detached_tensor())).collect();
        let bytes = safetensors::serialize(tensors.iter().map(|(name, tensor)| (*name, tensor)), Some(metadata))
            .map_err(|error| Error::checkpoint(path, error.to_string()))?;
        files::write(path, &bytes)
    }

    /// Reads parameters from `path`, all or none; see [`Parameters::set`]. `cast` first rounds or widens
    /// those of float types to one type.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Checkpoint`] for a file that isn't sound or holds non-finite values, [`Error::StateDict`],
    /// [`Error::DType`].
    pub fn load(
        &mut self,
        path: &Path,
        cast: Option<DType>,
        strict: bool,
        allow_nonfinite: bool,
    ) -> Result<Incompatible> {
        let mut tensors = read(path)?;
        if let Some(dtype) = cast {
            for tensor in tensors.values_mut().filter(|tensor| tensor.dtype().is_float()) {
                *tensor = tensor.to_dtype(dtype)?;
            }
        }
        self.set(&tensors, strict, allow_nonfinite).map_err(|error| match error {
            Error::NonFinite { .. } => Error::checkpoint(path, error.to_string()),
            other => other,
        })
    }
}

/// The tensors of a safetensors file by name, sorted.
pub fn read(path: &Path) -> Result<IndexMap<String, Tensor>> {
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    let unsound = |error: String| Error::checkpoint(path, format!("not a sound safetensors file: {error}"));
    safetensors::SafeTensors::deserialize(&bytes).map_err(|error| unsound(error.to_string()))?;
    let tensors =
        candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).map_err(|error| unsound(error.to_string()))?;
    let mut tensors: IndexMap<_, _> = tensors.into_iter().collect();
    tensors.sort_keys();
    Ok(tensors)
}
