//! Gradient flow made visible: one `tracing` event a parameter, at level DEBUG and target `mamba2::gradients`. And where the time
//! goes: one span for each stage of the fused kernels, at level TRACE and target `mamba2::stages`.

use candle_core::Tensor;
use indexmap::IndexMap;
use tracing::{Level, debug, enabled};

use crate::error::Result;
use crate::gradients::norm;

/// Target of the events.
pub const GRADIENTS: &str = "mamba2::gradients";

/// Target of the spans.
pub const STAGES: &str = "mamba2::stages";

/// The span of a stage of the kernels, from here to the end of the block.
macro_rules! stage {
    ($name:literal) => {
        tracing::trace_span!(target: $crate::trace::STAGES, $name).entered()
    };
}
pub(crate) use stage;

/// Reports layer, name and norm of each gradient. Costs nothing where no subscriber listens.
pub(crate) fn gradients(gradients: &IndexMap<String, Tensor>) -> Result<()> {
    if !enabled!(target: GRADIENTS, Level::DEBUG) {
        return Ok(());
    }
    for (name, grad) in gradients {
        let (layer, parameter) = split(name);
        debug!(target: GRADIENTS, layer, name = parameter, norm = norm(grad)?);
    }
    Ok(())
}

/// `layers.3.mixer.A_log` -> (`layers.3`, `mixer.A_log`); a name outside the layers has the empty layer.
fn split(name: &str) -> (&str, &str) {
    let Some(start) = name.find("layers.") else { return ("", name) };
    let number = start + "layers.".len();
    match name[number..].find('.') {
        Some(end) => (&name[..number + end], &name[number + end + 1..]),
        None => ("", name),
    }
}
