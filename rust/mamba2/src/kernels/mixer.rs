//! A whole mixer: projection, core, projection.
//!
//! Of many short sequences in a small model, each goes all the way through before the next does: what it needs stays in the nearest
//! caches. Else each stage takes all tokens at once.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;

use super::core::{Core, CoreInput, MANY_SEQUENCES, Sequence, Stopped, check, part_of};
use super::core_backward::{self, Backward, CoreUpstream, ParamGradients};
use super::core_forward::{self, CoreSaved, Forward, Wanted};
use super::linear::Linear;
use super::matrix::Matrix;
use super::parallel::{Shared, Threads, Unfilled};
use super::product::{Packed, Right, To, product_into};
use super::real::Real;
use super::step::StepInput;
use crate::trace::stage;

/// Bytes of both projections up to which a sequence at a time is faster: they stay in a core's own cache.
const SMALL: usize = 1 << 18;

/// Tokens below which a sequence isn't worth products of its own.
const FEW_TOKENS: usize = 16;

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
    fn core(&self, zxbcdt: &'a [T]) -> CoreInput<'a, T> {
        let Self { batch, seqlen, conv_state, ssm_state, .. } = *self;
        CoreInput { batch, seqlen, zxbcdt, conv_state, ssm_state }
    }

    /// Sequence `at`, of which `rows` are the columns.
    fn sequence(&self, at: usize, rows: &'a [T]) -> Sequence<'a, T> {
        let part = |all| part_of(all, self.batch, at);
        Sequence {
            seqlen: self.seqlen,
            rows,
            conv_state: self.conv_state.map(part),
            ssm_state: self.ssm_state.map(part),
        }
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
    zxbcdt: Vec<T>,
    core: CoreSaved<T>,
    /// (batch, seqlen, `d_inner`): what the output projection took.
    y: Vec<T>,
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

    /// Whether each sequence goes through alone.
    fn by_sequence(&self, input: &MixerInput<'_, T>) -> bool {
        let weights = self.in_proj.weight.len() + self.out_proj.weight.len();
        let biased = self.in_proj.bias.is_some() || self.out_proj.bias.is_some();
        let many = input.batch >= MANY_SEQUENCES && input.seqlen >= FEW_TOKENS;
        many && weights * size_of::<T>() <= SMALL && !biased
    }

    fn forward_by_sequence(
        &self,
        input: &MixerInput<'_, T>,
        wanted: Wanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerOutput<T>, Stopped> {
        let &MixerInput { batch, seqlen, u, .. } = input;
        let Self { in_proj, core, out_proj } = self;
        let (of_in, of_out) = (in_proj.matrix().transposed(), out_proj.matrix().transposed());
        let (of_in, of_out) = (Packed::new(of_in), Packed::new(of_out));
        let mut zxbcdt = Unfilled::new(batch * seqlen * core.dims.d_in_proj);
        let mut y = Unfilled::new(u.len());
        let mut results = core_forward::Results::new(core, batch, seqlen, wanted);
        let target = results.target();
        let (to_columns, to_y) = (Shared::new(zxbcdt.slots()), Shared::new(y.slots()));
        let pass = Forward::new(core, Threads::One, target);
        Threads::Many.try_each(batch, |at| {
            let part = |width: usize| at * seqlen * width..(at + 1) * seqlen * width;
            let rows = |data, width: usize| Matrix::new(data, seqlen, width, width);
            // SAFETY: each sequence has its own part of each buffer, and reads what it has filled.
            unsafe {
                let columns = to_columns.part(part(core.dims.d_in_proj));
                let u = rows(part_of(u, batch, at), in_proj.inputs);
                product_into(u, Right::Packed(&of_in), columns, To::Fill, Threads::One);
                pass.sequence(at, input.sequence(at, filled(columns)), stop)?;
                let output = filled(target.y.part(part(core.dims.d_inner)));
                let to = to_y.part(part(in_proj.inputs));
                product_into(rows(output, out_proj.inputs), Right::Packed(&of_out), to, To::Fill, Threads::One);
            }
            Ok(())
        })?;
        // SAFETY: every sequence went through.
        unsafe {
            let output = results.filled();
            let zxbcdt = zxbcdt.filled();
            Ok(MixerOutput {
                y: y.filled(),
                conv_state: output.conv_state,
                ssm_state: output.ssm_state,
                saved: output.saved.map(|core| MixerSaved { zxbcdt, core, y: output.y }),
            })
        }
    }

    fn backward_by_sequence(
        &self,
        input: &MixerInput<'_, T>,
        saved: &MixerSaved<T>,
        upstream: &MixerUpstream<'_, T>,
        wanted: MixerWanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerGradients<T>, Stopped> {
        let &MixerInput { batch, seqlen, u, .. } = input;
        let Self { in_proj, core, out_proj } = self;
        let (of_in, of_out) = (Packed::new(in_proj.matrix()), Packed::new(out_proj.matrix()));
        let mut du = Unfilled::new(if wanted.u { u.len() } else { 0 });
        let mut d_core = Unfilled::new(saved.y.len());
        let mut results = core_backward::Results::new(core, batch, seqlen, wanted.states);
        let target = results.target();
        let (to_u, to_core) = (Shared::new(du.slots()), Shared::new(d_core.slots()));
        // Its y isn't read: each sequence brings its own.
        let of_core = CoreUpstream { y: &[], conv_state: upstream.conv_state, ssm_state: upstream.ssm_state };
        let pass = Backward::new(core, &saved.core, &of_core, Threads::One, target);
        let blocks = core_backward::BLOCKS.min(batch);
        let size = batch.div_ceil(blocks);
        let mut in_weights = WeightSums::new(blocks, in_proj.weight.len(), wanted.in_proj);
        let mut out_weights = WeightSums::new(blocks, out_proj.weight.len(), wanted.out_proj);
        let (to_in, to_out) = (Shared::new(&mut in_weights.0), Shared::new(&mut out_weights.0));
        let sums = pass.blocks(batch, blocks, |at, sums| {
            let part = |width: usize| at * seqlen * width..(at + 1) * seqlen * width;
            let rows = |data, width: usize| Matrix::new(data, seqlen, width, width);
            let (block, to) = (at / size, if at % size == 0 { To::Fill } else { To::Add });
            let (d_model, d_inner, d_in_proj) = (in_proj.inputs, core.dims.d_inner, core.dims.d_in_proj);
            let (u, y, dy) =
                (part_of(u, batch, at), part_of(&saved.y, batch, at), rows(part_of(upstream.y, batch, at), d_model));
            // SAFETY: each sequence has its own part of each buffer, each block its own sums, and what is read has been filled.
            unsafe {
                if wanted.out_proj {
                    let sums = to_out.part(block * out_proj.weight.len()..(block + 1) * out_proj.weight.len());
                    product_into(dy.transposed(), Right::Plain(rows(y, d_inner)), sums, to, Threads::One);
                }
                let d_output = to_core.part(part(d_inner));
                product_into(dy, Right::Packed(&of_out), d_output, To::Fill, Threads::One);
                let sequence = input.sequence(at, part_of(&saved.zxbcdt, batch, at));
                pass.sequence(at, sequence, filled(d_output), sums, stop)?;
                let d_columns = rows(filled(target.zxbcdt.part(part(d_in_proj))), d_in_proj);
                if wanted.in_proj {
                    let sums = to_in.part(block * in_proj.weight.len()..(block + 1) * in_proj.weight.len());
                    product_into(d_columns.transposed(), Right::Plain(rows(u, d_model)), sums, to, Threads::One);
                }
                if wanted.u {
                    let du = to_u.part(part(d_model));
                    product_into(d_columns, Right::Packed(&of_in), du, To::Fill, Threads::One);
                }
            }
            Ok(())
        })?;
        let params = pass.param_gradients(&sums);
        // SAFETY: every sequence went through.
        unsafe {
            let core = results.filled(params);
            Ok(MixerGradients {
                u: wanted.u.then(|| du.filled()),
                in_proj: wanted.in_proj.then(|| (in_weights.total(in_proj.weight.len()), Vec::new())),
                core: core.params,
                out_proj: wanted.out_proj.then(|| (out_weights.total(out_proj.weight.len()), Vec::new())),
                conv_state: core.conv_state,
                ssm_state: core.ssm_state,
            })
        }
    }
}

/// Gradients to a weight, of each block of sequences.
struct WeightSums<T>(Vec<MaybeUninit<T>>);

impl<T: Real> WeightSums<T> {
    fn new(blocks: usize, len: usize, wanted: bool) -> Self {
        Self(vec![MaybeUninit::new(T::ZERO); if wanted { blocks * len } else { 0 }])
    }

    fn total(&self, len: usize) -> Vec<T> {
        let mut total = vec![T::ZERO; len];
        for block in self.0.chunks_exact(len) {
            for (sum, more) in total.iter_mut().zip(block) {
                // SAFETY: zero from the start.
                *sum += unsafe { more.assume_init() };
            }
        }
        total
    }
}

/// # Safety
/// All of `slots` has been filled.
unsafe fn filled<T>(slots: &[MaybeUninit<T>]) -> &[T] {
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(slots.as_ptr().cast(), slots.len()) }
}
