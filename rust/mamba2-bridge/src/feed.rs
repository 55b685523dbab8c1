//! What Python feeds in the place of intermediates.

use candle_core::DType;
use mamba2::{Fed, Feed};
use pyo3::prelude::*;

use crate::arrays::to_tensor;

/// What is fed to one tap, as Python's files pass it: name, value, gradient.
pub type FedArrays<'py> = (String, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// The core's feed.
pub fn to_feed(feed: Vec<FedArrays<'_>>, dtype: DType) -> PyResult<Feed> {
    let convert = |(name, value, gradient): FedArrays<'_>| {
        let value = to_tensor(&format!("the value fed to {name}"), &value, dtype)?;
        let convert = |gradient| to_tensor(&format!("the gradient fed to {name}"), &gradient, dtype);
        let gradient = gradient.map(convert).transpose()?;
        Ok((name, Fed { value, gradient }))
    };
    feed.into_iter().map(convert).collect()
}
