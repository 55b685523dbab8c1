//! What every model is to its owner: named parameters, states, and a differentiable forward.

use candle_core::{DType, Device, Tensor};

use crate::error::Result;
use crate::state::State;
use crate::tap::Taps;

/// A module whose forward pass takes and gives one state for each of its mixers.
pub trait Network: Send + Sync {
    /// `x` and the states before it -> the output and the states after its last token. Records a graph wherever a variable
    /// is reached. `states` holds one state for each mixer, of `x`'s batch; None: zeros. Intermediates go to `taps`.
    fn forward(&self, x: &Tensor, states: Option<&[State]>, taps: &Taps) -> Result<(Tensor, Vec<State>)>;

    /// One token: `x_t` is `x` without its seqlen. Equals `forward` of one token.
    fn step(&self, x_t: &Tensor, states: &[State], taps: &Taps) -> Result<(Tensor, Vec<State>)>;

    /// Refuses an input that [`Network::forward`] can't take.
    fn check_input(&self, x: &Tensor) -> Result<()>;

    /// Refuses an input that [`Network::step`] can't take.
    fn check_step_input(&self, x_t: &Tensor) -> Result<()>;

    /// What callers call the states they pass.
    fn states_name(&self) -> &'static str;

    /// Refuses states that don't fit the network and a batch of `batch`; `what` names them in the error.
    fn check_states(&self, what: &str, states: &[State], batch: usize, dtype: DType) -> Result<()>;

    /// The states before the first token.
    fn zero_states(&self, batch: usize, dtype: DType, device: &Device) -> Result<Vec<State>>;
}
