//! A whole mixer: projection, core, projection.
//!
//! Each stage takes all tokens at once; of many short sequences in a small model, each goes through alone (`by_sequence.rs`).

use std::sync::atomic::AtomicBool;

use super::core::{Core, CoreInput, Stopped, check};
use super::core_backward::{CoreUpstream, ParamGradients};
use super::core_forward::{CoreSaved, Wanted};
use super::linear::Linear;
use super::real::Real;
use super::step::StepInput;
use crate::trace::stage;

/// A mixer.
#[derive(Debug, Clone, Copy)]
pub struct Mixer<'a, T> {
    /// From u to z, x, B, C and dt.
    pub in_proj: Linear<'a, T>,
    /// What lies between.
    pub core: Core<'a, T>,
    /// From the core's output to y.
    pub out_proj: Linear<'a, T>,
}

/// What goes into a mixer.
#[derive(Debug, Clone, Copy)]
pub struct MixerInput<'a, T> {
    /// Sequences; at least 1.
    pub batch: usize,
    /// Tokens of each; at least 1.
    pub seqlen: usize,
    /// (batch, seqlen, `d_model`).
    pub u: &'a [T],
    /// (batch, `conv_dim`, `d_conv` − 1); None: zeros.
    pub conv_state: Option<&'a [T]>,
    /// (batch, nheads, headdim, `d_state`); None: zeros.
    pub ssm_state: Option<&'a [T]>,
}

impl<'a, T: Real> MixerInput<'a, T> {
    /// What goes into its core, of columns `zxbcdt`.
    pub(super) fn core(&self, zxbcdt: &'a [T]) -> CoreInput<'a, T> {
        let Self { batch, seqlen, conv_state, ssm_state, .. } = *self;
        CoreInput { batch, seqlen, zxbcdt, conv_state, ssm_state }
    }
}

/// What a mixer's forward gives.
#[derive(Debug)]
pub struct MixerOutput<T> {
    /// (batch, seqlen, `d_model`).
    pub y: Vec<T>,
    /// (batch, `conv_dim`, `d_conv` − 1), where it was asked for.
    pub conv_state: Option<Vec<T>>,
    /// (batch, nheads, headdim, `d_state`), where it was asked for.
    pub ssm_state: Option<Vec<T>>,
    /// What a backward needs, where it was asked for.
    pub saved: Option<MixerSaved<T>>,
}

/// What a mixer's backward needs beside the input.
#[derive(Debug)]
pub struct MixerSaved<T> {
    /// (batch, seqlen, `d_in_proj`).
    pub(super) zxbcdt: Vec<T>,
    pub(super) core: CoreSaved<T>,
    /// (batch, seqlen, `d_inner`): what the output projection took.
    pub(super) y: Vec<T>,
}

/// Gradients to what a mixer gave.
#[derive(Debug, Clone, Copy)]
pub struct MixerUpstream<'a, T> {
    /// (batch, seqlen, `d_model`).
    pub y: &'a [T],
    /// (batch, `conv_dim`, `d_conv` − 1); None: zeros.
    pub conv_state: Option<&'a [T]>,
    /// (batch, nheads, headdim, `d_state`); None: zeros.
    pub ssm_state: Option<&'a [T]>,
}

/// Which gradients a backward is asked for beside those of the core's parameters.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // each is a question of its own
pub struct MixerWanted {
    /// To the input.
    pub u: bool,
    /// To the input projection.
    pub in_proj: bool,
    /// To the output projection.
    pub out_proj: bool,
    /// To the initial states.
    pub states: bool,
}

/// Gradients to what went into a mixer, where they were asked for.
#[derive(Debug)]
pub struct MixerGradients<T> {
    /// Like the input.
    pub u: Option<Vec<T>>,
    /// To weight and bias.
    pub in_proj: Option<(Vec<T>, Vec<T>)>,
    /// To the core's parameters.
    pub core: ParamGradients<T>,
    /// To weight and bias.
    pub out_proj: Option<(Vec<T>, Vec<T>)>,
    /// Like the input's.
    pub conv_state: Option<Vec<T>>,
    /// Like the input's.
    pub ssm_state: Option<Vec<T>>,
}

impl<T: Real> Mixer<'_, T> {
    /// y, and what `wanted` says. `stop`: set it to make the work end soon.
    pub fn forward(
        &self,
        input: &MixerInput<'_, T>,
        wanted: Wanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerOutput<T>, Stopped> {
        if self.by_sequence(input) {
            return self.forward_by_sequence(input, wanted, stop);
        }
        let stage = stage!("in_proj");
        let zxbcdt = self.in_proj.forward(input.u);
        drop(stage);
        check(stop)?;
        if let (1, false, Some(conv_state), Some(ssm_state)) =
            (input.seqlen, wanted.saved, input.conv_state, input.ssm_state)
        {
            let output = self.core.step(&StepInput { batch: input.batch, zxbcdt: &zxbcdt, conv_state, ssm_state });
            let (conv_state, ssm_state) = (Some(output.conv_state), Some(output.ssm_state));
            return Ok(MixerOutput { y: self.project(&output.y), conv_state, ssm_state, saved: None });
        }
        let output = self.core.forward(&input.core(&zxbcdt), wanted, stop)?;
        let y = self.project(&output.y);
        Ok(MixerOutput {
            y,
            conv_state: output.conv_state,
            ssm_state: output.ssm_state,
            saved: output.saved.map(|core| MixerSaved { zxbcdt, core, y: output.y }),
        })
    }

    fn project(&self, y: &[T]) -> Vec<T> {
        let _stage = stage!("out_proj");
        self.out_proj.forward(y)
    }

    /// Gradients of the forward pass that took `input` and left `saved`.
    pub fn backward(
        &self,
        input: &MixerInput<'_, T>,
        saved: &MixerSaved<T>,
        upstream: &MixerUpstream<'_, T>,
        wanted: MixerWanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerGradients<T>, Stopped> {
        if self.by_sequence(input) {
            return self.backward_by_sequence(input, saved, upstream, wanted, stop);
        }
        let out_proj = wanted.out_proj.then(|| {
            let _stage = stage!("out_proj.backward.weight");
            self.out_proj.backward_parameters(&saved.y, upstream.y)
        });
        check(stop)?;
        let stage = stage!("out_proj.backward.input");
        let d_core = self.out_proj.backward(upstream.y);
        drop(stage);
        check(stop)?;
        let of_core = CoreUpstream { y: &d_core, conv_state: upstream.conv_state, ssm_state: upstream.ssm_state };
        let core = self.core.backward(&input.core(&saved.zxbcdt), &saved.core, &of_core, wanted.states, stop)?;
        drop(d_core);
        let in_proj = wanted.in_proj.then(|| {
            let _stage = stage!("in_proj.backward.weight");
            self.in_proj.backward_parameters(input.u, &core.zxbcdt)
        });
        check(stop)?;
        let u = wanted.u.then(|| {
            let _stage = stage!("in_proj.backward.input");
            self.in_proj.backward(&core.zxbcdt)
        });
        let (conv_state, ssm_state) = (core.conv_state, core.ssm_state);
        Ok(MixerGradients { u, in_proj, core: core.params, out_proj, conv_state, ssm_state })
    }
}
