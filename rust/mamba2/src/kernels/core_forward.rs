//! The core's forward pass.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use pulp::{Simd, WithSimd};

use super::conv::Taps;
use super::core::{Columns, Core, CoreInput, Packing, Sequence, Stopped, check, superblocks};
use super::pack::Packer;
use super::parallel::{Shared, Threads, Unfilled, fill};
use super::real::Real;
use super::rows::copy;
use super::scratch::{Scratch, Workspace, room};
use super::simd;
use super::ssd::{CHUNK, HeadForward};
use crate::dims::Dims;
use crate::trace::stage;

/// What a core's forward gives.
#[derive(Debug)]
pub struct CoreOutput<T> {
    /// (batch, seqlen, `d_inner`).
    pub y: Vec<T>,
    /// (batch, `conv_dim`, `d_conv` − 1), where it was asked for.
    pub conv_state: Option<Vec<T>>,
    /// (batch, nheads, headdim, `d_state`), where it was asked for.
    pub ssm_state: Option<Vec<T>>,
    /// What a backward needs, where it was asked for.
    pub saved: Option<CoreSaved<T>>,
}

/// What a core's backward needs beside the input.
#[derive(Debug)]
pub struct CoreSaved<T> {
    /// (batch, seqlen, `d_ssm`): the scan's output, D·x included.
    pub(crate) y: Vec<T>,
    /// (batch, seqlen, `norm_groups`): reciprocal roots of the norm.
    pub(crate) roots: Vec<T>,
    /// (batch, nsuperblocks, nheads, `d_state`, width): the state before each superblock.
    pub(crate) states: Vec<T>,
}

/// What a forward is asked for beside y.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// The states after the last token.
    pub states: bool,
    /// What a backward needs.
    pub saved: bool,
}

/// Where results other than y go; each sequence fills its part.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a, T> {
    /// The convolution's and the scan's.
    states: Option<[Slots<'a, T>; 2]>,
    saved: Option<SavedTarget<'a, T>>,
}

pub(crate) type Slots<'a, T> = Shared<'a, MaybeUninit<T>>;

#[derive(Clone, Copy)]
pub(crate) struct SavedTarget<'a, T> {
    y: Slots<'a, T>,
    roots: Slots<'a, T>,
    states: Slots<'a, T>,
}

/// Results of a forward pass other than y, until every sequence has filled its part.
pub(crate) struct Results<T> {
    /// The convolution's and the scan's.
    states: Option<[Unfilled<T>; 2]>,
    /// y, roots and states of [`CoreSaved`].
    saved: Option<[Unfilled<T>; 3]>,
}

impl<T: Real> Results<T> {
    pub(crate) fn new(core: &Core<'_, T>, batch: usize, seqlen: usize, wanted: Wanted) -> Self {
        let (dims, tokens) = (&core.dims, batch * seqlen);
        let states = || {
            let conv = dims.conv_state_shape(batch).iter().product();
            [conv, dims.ssm_state_shape(batch).iter().product()].map(Unfilled::new)
        };
        let saved = || {
            let states = batch * superblocks(seqlen).len() * core.packing().states();
            [tokens * dims.d_ssm, tokens * core.roots(), states].map(Unfilled::new)
        };
        Self { states: wanted.states.then(states), saved: wanted.saved.then(saved) }
    }

    pub(crate) fn target(&mut self) -> Target<'_, T> {
        Target {
            states: self.states.as_mut().map(|states| states.each_mut().map(|state| Shared::new(state.slots()))),
            saved: self.saved.as_mut().map(|saved| {
                let [y, roots, states] = saved.each_mut().map(|saved| Shared::new(saved.slots()));
                SavedTarget { y, roots, states }
            }),
        }
    }

    /// With `y` from the same sequences.
    ///
    /// # Safety
    /// Every sequence has been through [`Forward::sequence`].
    pub(crate) unsafe fn filled(self, y: Vec<T>) -> CoreOutput<T> {
        // SAFETY: by the caller's promise.
        let filled = |unfilled: Unfilled<T>| unsafe { unfilled.filled() };
        let (conv_state, ssm_state) = self.states.map(|[conv, ssm]| (filled(conv), filled(ssm))).unzip();
        let saved = self.saved.map(|[y, roots, states]| CoreSaved {
            y: filled(y),
            roots: filled(roots),
            states: filled(states),
        });
        CoreOutput { y, conv_state, ssm_state, saved }
    }
}

/// A forward pass of some sequences.
pub(crate) struct Forward<'a, T> {
    core: &'a Core<'a, T>,
    columns: Columns,
    packing: Packing,
    taps: Taps<'a, T>,
    a: Vec<T>,
    threads: Threads,
    target: Target<'a, T>,
}

impl<'a, T: Real> Forward<'a, T> {
    pub(crate) fn new(core: &'a Core<'a, T>, threads: Threads, target: Target<'a, T>) -> Self {
        let (columns, packing) = (core.columns(), core.packing());
        Self { core, columns, packing, taps: core.taps(), a: core.a(), threads, target }
    }

    /// The sequence `at` of the batch, its output to `y` (seqlen, `d_inner`), all of which is filled.
    pub(crate) fn sequence(
        &self,
        at: usize,
        sequence: Sequence<'_, T>,
        y: &mut [MaybeUninit<T>],
        stop: Option<&AtomicBool>,
    ) -> Result<(), Stopped> {
        Pass { forward: self, at, sequence, y: Shared::new(y) }.run(stop)
    }
}

impl<T: Real> Core<'_, T> {
    /// y, and what `wanted` says. `stop`: set it to make the work end soon.
    pub fn forward(
        &self,
        input: &CoreInput<'_, T>,
        wanted: Wanted,
        stop: Option<&AtomicBool>,
    ) -> Result<CoreOutput<T>, Stopped> {
        let len = input.seqlen * self.dims.d_inner;
        let mut y = Unfilled::new(input.batch * len);
        let mut results = Results::new(self, input.batch, input.seqlen, wanted);
        let threads = Self::threads_of_sequence(input.batch);
        let pass = Forward::new(self, threads, results.target());
        let to_y = Shared::new(y.slots());
        threads.over_sequences().try_each(input.batch, |at| {
            // SAFETY: each sequence has its own part.
            pass.sequence(at, input.sequence(at), unsafe { to_y.part(at * len..(at + 1) * len) }, stop)
        })?;
        // SAFETY: every sequence went through.
        Ok(unsafe { results.filled(y.filled()) })
    }

    /// Reciprocal roots of one token.
    pub(crate) fn roots(&self) -> usize {
        if self.params.norm_weight.is_some() { self.dims.norm_groups } else { 0 }
    }
}

/// One sequence on its way through the core.
struct Pass<'a, T> {
    forward: &'a Forward<'a, T>,
    /// Which of the batch.
    at: usize,
    sequence: Sequence<'a, T>,
    /// (seqlen, `d_inner`).
    y: Slots<'a, T>,
}

impl<T: Real> Pass<'_, T> {
    fn run(&self, stop: Option<&AtomicBool>) -> Result<(), Stopped> {
        let Self { forward: Forward { core, columns, packing, taps, threads, target, .. }, sequence, .. } = self;
        let (dims, seqlen) = (&core.dims, sequence.seqlen);
        let history = sequence.history(dims);
        let raw = sequence.raw(columns, &history);
        let packer = Packer { core, columns, packing, taps, sequence, raw };
        let mut scratch = Scratch::<T>::take();
        let mut started = false;
        room(&mut scratch.states, packing.states());
        if let Some(state) = sequence.ssm_state {
            pack_states(packing, state, &mut scratch.states);
            started = true;
        }
        let nsuperblocks = superblocks(seqlen).len();
        for (number, tokens) in superblocks(seqlen).enumerate() {
            check(stop)?;
            if let Some(saved) = target.saved {
                let from = (self.at * nsuperblocks + number) * packing.states();
                // SAFETY: the only access to the states of this superblock.
                let states = unsafe { saved.states.part(from..from + packing.states()) };
                if started {
                    fill(states, &scratch.states[..packing.states()]);
                } else {
                    states.fill(MaybeUninit::new(T::ZERO));
                }
            }
            let last = tokens.end == seqlen;
            let conv = stage!("conv");
            packer.pack(tokens.clone(), false, *threads, &mut scratch);
            drop(conv);
            self.scan(tokens.len(), started, !last || target.states.is_some(), &mut scratch);
            self.finish(tokens, &scratch);
            started = true;
        }
        if let Some([conv, ssm]) = target.states {
            let part = |len: usize| self.at * len..(self.at + 1) * len;
            // SAFETY: the only access to this sequence's states.
            let (conv, ssm) = unsafe {
                let conv_len = dims.conv_dim * (dims.d_conv - 1);
                (conv.part(part(conv_len)), ssm.part(part(dims.d_ssm * dims.d_state)))
            };
            for back in 1..dims.d_conv {
                // The last columns are those before a token that would come next.
                for (channel, &x) in raw.before(seqlen, back).iter().enumerate() {
                    conv[channel * (dims.d_conv - 1) + dims.d_conv - 1 - back].write(x);
                }
            }
            unpack_states(packing, &scratch.states, ssm);
        }
        Ok(())
    }

    /// The heads of a superblock, each over its tokens.
    fn scan(&self, tokens: usize, started: bool, carry: bool, scratch: &mut Workspace<T>) {
        let _stage = stage!("scan");
        let Forward { core, packing, a, threads, .. } = self.forward;
        let Workspace { x, b, c, scores, dt, states, y, .. } = scratch;
        let (head, group) = (tokens * packing.width, tokens * packing.state_stride);
        let square = tokens.div_ceil(CHUNK) * CHUNK * CHUNK;
        let (y, states) = (Shared::new(room(y, packing.nheads * head)), Shared::new(room(states, packing.states())));
        threads.each(packing.nheads, |at| {
            let g = packing.group_of(at);
            // SAFETY: each head has its own output and state.
            let (y, state) = unsafe {
                (y.part(at * head..(at + 1) * head), states.part(at * packing.state()..(at + 1) * packing.state()))
            };
            simd::run(HeadForward {
                tokens,
                d_state: packing.d_state,
                state_stride: packing.state_stride,
                width: packing.width,
                x: &x[at * head..][..head],
                b: &b[g * group..][..group],
                c: &c[g * group..][..group],
                scores: &scores[g * square..][..square],
                dt: &dt[at * tokens..][..tokens],
                a: a[at],
                skip: core.skip(at),
                state,
                started,
                carry,
                y,
            });
        });
    }

    /// Gates and norms the tokens of a superblock.
    fn finish(&self, tokens: Range<usize>, scratch: &Workspace<T>) {
        let _stage = stage!("norm");
        let start = tokens.start;
        let count = tokens.len();
        self.forward.threads.each(count.div_ceil(CHUNK), |chunk| {
            let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(count);
            simd::run(Finish { pass: self, start, count, rows, x: &scratch.x, y: &scratch.y });
        });
    }
}

/// The rows of one chunk from the scan's output to the core's.
struct Finish<'a, T> {
    pass: &'a Pass<'a, T>,
    start: usize,
    count: usize,
    rows: Range<usize>,
    x: &'a [T],
    y: &'a [T],
}

impl<T: Real> WithSimd for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pass, start, count, rows, x, y } = self;
        let Forward { core, columns, packing, target, .. } = pass.forward;
        let Dims { d_inner, d_mlp, d_ssm, .. } = core.dims;
        let norm = core.gated_norm();
        let mut roots = vec![T::ZERO; core.roots()];
        let mut out = vec![T::ZERO; d_inner];
        for t in rows {
            let token = start + t;
            let row = pass.sequence.row(token);
            let (mlp, scan) = out.split_at_mut(d_mlp);
            gather(packing, y, count, t, scan);
            if let Some(skip) = core.channel_skip() {
                for (head, (scan, skip)) in
                    scan.chunks_exact_mut(core.dims.headdim).zip(skip.chunks_exact(core.dims.headdim)).enumerate()
                {
                    let x = &x[(head * count + t) * packing.width..];
                    for ((scan, &skip), &x) in scan.iter_mut().zip(skip).zip(x) {
                        *scan = skip.fma::<S>(x, *scan);
                    }
                }
            }
            let at = pass.at * pass.sequence.seqlen + token;
            // SAFETY: each token's rows are accessed here alone.
            unsafe {
                if let Some(saved) = target.saved {
                    fill(saved.y.part(at * d_ssm..(at + 1) * d_ssm), scan);
                }
                norm.forward::<S>(scan, &row[columns.z.clone()], &mut roots);
                gated_mlp::<S, T>(&row[columns.z0.clone()], &row[columns.x0.clone()], mlp);
                if let Some(saved) = target.saved {
                    fill(saved.roots.part(at * roots.len()..(at + 1) * roots.len()), &roots);
                }
                fill(pass.y.part(token * d_inner..(token + 1) * d_inner), &out);
            }
        }
    }
}

/// `SiLU(z0) ⊙ x0`.
#[inline(always)]
pub(crate) fn gated_mlp<S: Simd, T: Real>(z0: &[T], x0: &[T], out: &mut [T]) {
    for ((out, &z), &x) in out.iter_mut().zip(z0).zip(x0) {
        *out = z.silu::<S>() * x;
    }
}

/// One token's channels out of a packed superblock of `tokens` tokens.
#[inline(always)]
pub(crate) fn gather<T: Real>(packing: &Packing, packed: &[T], tokens: usize, t: usize, row: &mut [T]) {
    for (head, row) in row.chunks_exact_mut(packing.headdim).enumerate() {
        copy(row, &packed[(head * tokens + t) * packing.width..][..packing.headdim]);
    }
}

/// States (nheads, headdim, `d_state`) to (nheads, `d_state`, width).
pub(crate) fn pack_states<T: Real>(packing: &Packing, states: &[T], packed: &mut [T]) {
    let Packing { headdim, d_state, width, .. } = *packing;
    for (state, packed) in states.chunks_exact(headdim * d_state).zip(packed.chunks_exact_mut(packing.state())) {
        for (n, packed) in packed.chunks_exact_mut(width).enumerate() {
            for (p, packed) in packed.iter_mut().enumerate() {
                *packed = if p < headdim { state[p * d_state + n] } else { T::ZERO };
            }
        }
    }
}

/// The reverse of [`pack_states`].
pub(crate) fn unpack_states<T: Real>(packing: &Packing, packed: &[T], states: &mut [MaybeUninit<T>]) {
    let Packing { headdim, d_state, width, .. } = *packing;
    for (state, packed) in states.chunks_exact_mut(headdim * d_state).zip(packed.chunks_exact(packing.state())) {
        for (p, state) in state.chunks_exact_mut(d_state).enumerate() {
            for (n, state) in state.iter_mut().enumerate() {
                state.write(packed[n * width + p]);
            }
        }
    }
}
