//! A small model's mixer over many short sequences: each goes all the way through before the next does, so that what it needs stays in the
//! nearest caches.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;

use super::core::{MANY_SEQUENCES, Stopped, part_of};
use super::core_backward::{self, Backward, CoreUpstream};
use super::core_forward::{self, Forward, Slots, Wanted};
use super::matrix::Matrix;
use super::mixer::{Mixer, MixerGradients, MixerInput, MixerOutput, MixerSaved, MixerUpstream, MixerWanted};
use super::parallel::{Shared, Threads, Unfilled, slots};
use super::product::{Packed, Right, To, product_into};
use super::real::Real;
use super::scratch::{Scratch, Workspace, room};

/// Bytes of both projections up to which this is faster: they stay in a core's own cache.
const SMALL: usize = 1 << 18;

/// Bytes of a sequence's columns up to which it stays in the next one.
const SHORT: usize = 1 << 20;

/// Tokens below which a sequence isn't worth products of its own.
const FEW_TOKENS: usize = 16;

impl<T: Real> Mixer<'_, T> {
    /// Whether each sequence goes through alone.
    pub(super) fn by_sequence(&self, input: &MixerInput<'_, T>) -> bool {
        let weights = self.in_proj.weight.len() + self.out_proj.weight.len();
        let biased = self.in_proj.bias.is_some() || self.out_proj.bias.is_some();
        let many = input.batch >= MANY_SEQUENCES && input.seqlen >= FEW_TOKENS;
        let columns = input.seqlen * self.core.dims.d_in_proj;
        many && weights * size_of::<T>() <= SMALL && columns * size_of::<T>() <= SHORT && !biased
    }

    /// [`Mixer::forward`].
    pub(super) fn forward_by_sequence(
        &self,
        input: &MixerInput<'_, T>,
        wanted: Wanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerOutput<T>, Stopped> {
        let &MixerInput { batch, seqlen, u, .. } = input;
        let Self { in_proj, core, out_proj } = self;
        let (d_model, d_inner, d_in_proj) = (in_proj.inputs, core.dims.d_inner, core.dims.d_in_proj);
        let (of_in, of_out) = (in_proj.matrix().transposed(), out_proj.matrix().transposed());
        let (of_in, of_out) = (Packed::new(of_in), Packed::new(of_out));
        let mut y = Unfilled::new(u.len());
        let mut results = core_forward::Results::new(core, batch, seqlen, wanted);
        let mut kept = wanted.saved.then(|| [d_in_proj, d_inner].map(|width| Unfilled::new(batch * seqlen * width)));
        let to_y = Shared::new(y.slots());
        let to_kept = kept.as_mut().map(|kept| kept.each_mut().map(|kept| Shared::new(kept.slots())));
        let pass = Forward::new(core, Threads::One, results.target());
        Threads::Many.try_each(batch, |at| {
            let part = |width: usize| at * seqlen * width..(at + 1) * seqlen * width;
            let rows = |data, width: usize| Matrix::new(data, seqlen, width, width);
            let mut scratch = Scratch::<T>::take();
            let Workspace { zxbcdt, inner, .. } = &mut *scratch;
            // SAFETY: each sequence has its own part of each buffer, and reads what it has filled.
            unsafe {
                let (columns, output) = match to_kept {
                    Some([columns, output]) => (columns.part(part(d_in_proj)), output.part(part(d_inner))),
                    None => (slots(room(zxbcdt, seqlen * d_in_proj)), slots(room(inner, seqlen * d_inner))),
                };
                let u = rows(part_of(u, batch, at), d_model);
                product_into(u, Right::Packed(&of_in), columns, To::Fill, Threads::One);
                pass.sequence(at, input.core(&[]).sequence_of(at, filled(columns)), output, stop)?;
                let to = to_y.part(part(d_model));
                product_into(rows(filled(output), d_inner), Right::Packed(&of_out), to, To::Fill, Threads::One);
            }
            Ok(())
        })?;
        // SAFETY: every sequence went through.
        unsafe {
            let kept = kept.map(|kept| kept.map(|kept| kept.filled()));
            let (zxbcdt, output) = kept.map_or_else(Default::default, |[zxbcdt, output]| (zxbcdt, output));
            let output = results.filled(output);
            Ok(MixerOutput {
                y: y.filled(),
                conv_state: output.conv_state,
                ssm_state: output.ssm_state,
                saved: output.saved.map(|core| MixerSaved { zxbcdt, core, y: output.y }),
            })
        }
    }

    /// [`Mixer::backward`].
    pub(super) fn backward_by_sequence(
        &self,
        input: &MixerInput<'_, T>,
        saved: &MixerSaved<T>,
        upstream: &MixerUpstream<'_, T>,
        wanted: MixerWanted,
        stop: Option<&AtomicBool>,
    ) -> Result<MixerGradients<T>, Stopped> {
        let &MixerInput { batch, seqlen, u, .. } = input;
        let Self { in_proj, core, out_proj } = self;
        let (d_model, d_inner, d_in_proj) = (in_proj.inputs, core.dims.d_inner, core.dims.d_in_proj);
        let (of_in, of_out) = (Packed::new(in_proj.matrix()), Packed::new(out_proj.matrix()));
        let mut du = wanted.u.then(|| Unfilled::new(u.len()));
        let to_u = du.as_mut().map(|du| Shared::new(du.slots()));
        let mut results = core_backward::Results::new(core, batch, wanted.states);
        // Its y isn't read: each sequence brings its own.
        let of_core = CoreUpstream { y: &[], conv_state: upstream.conv_state, ssm_state: upstream.ssm_state };
        let pass = Backward::new(core, &saved.core, &of_core, Threads::One, results.target());
        let size = core_backward::block_size(batch);
        let blocks = batch.div_ceil(size);
        let mut in_weights = wanted.in_proj.then(|| BlockSums::new(blocks, in_proj.weight.len()));
        let mut out_weights = wanted.out_proj.then(|| BlockSums::new(blocks, out_proj.weight.len()));
        let (to_in, to_out) = (in_weights.as_mut().map(BlockSums::slots), out_weights.as_mut().map(BlockSums::slots));
        let sums = pass.blocks(batch, size, |at, sums| {
            let part = |width: usize| at * seqlen * width..(at + 1) * seqlen * width;
            let rows = |data, width: usize| Matrix::new(data, seqlen, width, width);
            let (block, to) = (at / size, if at % size == 0 { To::Fill } else { To::Add });
            let of_block = |len: usize| block * len..(block + 1) * len;
            let (u, y) = (part_of(u, batch, at), part_of(&saved.y, batch, at));
            let dy = rows(part_of(upstream.y, batch, at), d_model);
            let mut scratch = Scratch::<T>::take();
            let Workspace { zxbcdt, inner, .. } = &mut *scratch;
            // SAFETY: each sequence has its own part of each buffer, each block its own sums, and what is read has been filled.
            unsafe {
                let (d_columns, d_output) = (room(zxbcdt, seqlen * d_in_proj), room(inner, seqlen * d_inner));
                if let Some(sums) = to_out {
                    let sums = sums.part(of_block(out_proj.weight.len()));
                    product_into(dy.transposed(), Right::Plain(rows(y, d_inner)), sums, to, Threads::One);
                }
                product_into(dy, Right::Packed(&of_out), slots(d_output), To::Fill, Threads::One);
                let sequence = input.core(&saved.zxbcdt).sequence(at);
                pass.sequence(at, sequence, d_output, slots(d_columns), sums, stop)?;
                let d_columns = rows(d_columns, d_in_proj);
                if let Some(sums) = to_in {
                    let sums = sums.part(of_block(in_proj.weight.len()));
                    product_into(d_columns.transposed(), Right::Plain(rows(u, d_model)), sums, to, Threads::One);
                }
                if let Some(du) = to_u {
                    product_into(d_columns, Right::Packed(&of_in), du.part(part(d_model)), To::Fill, Threads::One);
                }
            }
            Ok(())
        })?;
        let params = pass.param_gradients(&sums);
        // SAFETY: every sequence went through.
        unsafe {
            let core = results.filled(Vec::new(), params);
            Ok(MixerGradients {
                u: du.map(|du| du.filled()),
                in_proj: in_weights.map(|sums| (sums.total(), Vec::new())),
                core: core.params,
                out_proj: out_weights.map(|sums| (sums.total(), Vec::new())),
                conv_state: core.conv_state,
                ssm_state: core.ssm_state,
            })
        }
    }
}

/// Gradients to a weight, of each block of sequences.
struct BlockSums<T> {
    blocks: usize,
    sums: Unfilled<T>,
}

/// Elements of a weight that are summed by one task.
const PART: usize = 1 << 12;

impl<T: Real> BlockSums<T> {
    fn new(blocks: usize, len: usize) -> Self {
        Self { blocks, sums: Unfilled::new(blocks * len) }
    }

    fn slots(&mut self) -> Slots<'_, T> {
        Shared::new(self.sums.slots())
    }

    /// # Safety
    /// Every block has been filled.
    unsafe fn total(self) -> Vec<T> {
        // SAFETY: by the caller's promise.
        let mut sums = unsafe { self.sums.filled() };
        let len = sums.len() / self.blocks;
        let (total, others) = sums.split_at_mut(len);
        let to = Shared::new(total);
        Threads::Many.each(len.div_ceil(PART), |part| {
            let part = part * PART..((part + 1) * PART).min(len);
            // SAFETY: each part is summed by one task.
            let to = unsafe { to.part(part.clone()) };
            for other in others.chunks_exact(len) {
                for (sum, &more) in to.iter_mut().zip(&other[part.clone()]) {
                    *sum += more;
                }
            }
        });
        sums.truncate(len);
        sums
    }
}

/// # Safety
/// All of `slots` has been filled.
unsafe fn filled<T>(slots: &[MaybeUninit<T>]) -> &[T] {
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(slots.as_ptr().cast(), slots.len()) }
}
