//! The core's backward pass: superblocks from the last to the first, each packed again from the input.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::conv::{RawColumns, Taps};
use super::core::{Columns, Core, CoreInput, Packing, Sequence, Stopped, check, superblocks};
use super::core_backward_rows::{Close, Open};
use super::core_forward::{CoreSaved, Slots, pack_states, unpack_states};
use super::pack::Packer;
use super::parallel::{Shared, Threads, Unfilled};
use super::real::Real;
use super::scratch::{Scratch, Workspace, room};
use super::simd;
use super::ssd::CHUNK;
use super::ssd_backward::{GroupBackward, HeadBackward, HeadSums};
use crate::dims::Dims;
use crate::trace::stage;

/// Tasks that the heads of a group are cut into: each adds up gradients of B and C in buffers of its own.
const TASKS: usize = 8;

/// Blocks that many sequences are cut into: each adds up gradients of the parameters on its own.
const BLOCKS: usize = 16;

/// Sequences of such a block.
pub(crate) fn block_size(batch: usize) -> usize {
    batch.div_ceil(BLOCKS)
}

/// Gradients to what a core gave.
#[derive(Debug, Clone, Copy)]
pub struct CoreUpstream<'a, T> {
    /// (batch, seqlen, `d_inner`).
    pub y: &'a [T],
    /// (batch, `conv_dim`, `d_conv` − 1); None: zeros.
    pub conv_state: Option<&'a [T]>,
    /// (batch, nheads, headdim, `d_state`); None: zeros.
    pub ssm_state: Option<&'a [T]>,
}

/// Gradients to what went into a core.
#[derive(Debug)]
pub struct CoreGradients<T> {
    /// (batch, seqlen, `d_in_proj`).
    pub zxbcdt: Vec<T>,
    /// Like the input's, where it was asked for.
    pub conv_state: Option<Vec<T>>,
    /// Like the input's, where it was asked for.
    pub ssm_state: Option<Vec<T>>,
    /// Like [`super::core::CoreParams`].
    pub params: ParamGradients<T>,
}

/// Gradients to a core's parameters, of their shapes. Those of parameters that the core lacks are empty.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in CoreParams
pub struct ParamGradients<T> {
    pub conv_weight: Vec<T>,
    pub conv_bias: Vec<T>,
    pub dt_bias: Vec<T>,
    pub a_log: Vec<T>,
    pub d: Vec<T>,
    pub norm_weight: Vec<T>,
}

/// Sums over tokens, in f64.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    /// (`d_conv`, `conv_dim`), by tokens back, and the bias as a last row.
    conv: Vec<f64>,
    dt_bias: Vec<f64>,
    a: Vec<f64>,
    /// (nheads) or (`d_ssm`).
    d: Vec<f64>,
    norm: Vec<f64>,
}

impl Sums {
    fn new(dims: &Dims, skips: usize) -> Self {
        let zeros = |len| vec![0.0; len];
        Self {
            conv: zeros((dims.d_conv + 1) * dims.conv_dim),
            dt_bias: zeros(dims.nheads),
            a: zeros(dims.nheads),
            d: zeros(skips),
            norm: zeros(dims.d_ssm),
        }
    }

    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.conv, &other.conv),
            (&mut self.dt_bias, &other.dt_bias),
            (&mut self.a, &other.a),
            (&mut self.d, &other.d),
            (&mut self.norm, &other.norm),
        ];
        for (sums, more) in pairs {
            for (sum, &more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
    }
}

/// The same over the tokens of one chunk.
#[derive(Debug)]
pub(super) struct ChunkSums<T> {
    pub(super) conv: Vec<T>,
    pub(super) dt_bias: Vec<T>,
    pub(super) d: Vec<T>,
}

/// Where gradients to the initial states go, the convolution's and the scan's; each sequence fills its part.
pub(crate) type Target<'a, T> = Option<[Slots<'a, T>; 2]>;

impl<T: Real> Core<'_, T> {
    /// Gradients of the forward pass that took `input` and left `saved`. `states`: to the initial states, too.
    pub fn backward(
        &self,
        input: &CoreInput<'_, T>,
        saved: &CoreSaved<T>,
        upstream: &CoreUpstream<'_, T>,
        states: bool,
        stop: Option<&AtomicBool>,
    ) -> Result<CoreGradients<T>, Stopped> {
        let batch = input.batch;
        let mut zxbcdt = Unfilled::new(input.zxbcdt.len());
        let mut results = Results::new(self, batch, states);
        let threads = Self::threads_of_sequence(batch);
        let pass = Backward::new(self, saved, upstream, threads, results.target());
        let (len, row) = (upstream.y.len() / batch, zxbcdt.slots().len() / batch);
        let to = Shared::new(zxbcdt.slots());
        let size = if threads == Threads::One { block_size(batch) } else { batch };
        let sums = pass.blocks(batch, size, |at, sums| {
            // SAFETY: each sequence has its own part.
            let to = unsafe { to.part(at * row..(at + 1) * row) };
            pass.sequence(at, input.sequence(at), &upstream.y[at * len..(at + 1) * len], to, sums, stop)
        })?;
        let params = pass.param_gradients(&sums);
        // SAFETY: every sequence went through.
        Ok(unsafe { results.filled(zxbcdt.filled(), params) })
    }

    fn param_gradients(&self, sums: &Sums, a: &[T]) -> ParamGradients<T> {
        let Dims { conv_dim, d_conv, .. } = self.dims;
        let narrow = |sums: &[f64]| sums.iter().map(|&sum| T::from_f64(sum)).collect::<Vec<_>>();
        let (taps, bias) = sums.conv.split_at(d_conv * conv_dim);
        let weight = (0..conv_dim * d_conv).map(|at| taps[(d_conv - 1 - at % d_conv) * conv_dim + at / d_conv]);
        // A = −exp(A_log) is its own derivative.
        let a_log = sums.a.iter().zip(a).map(|(sum, a)| sum * a.to_f64());
        ParamGradients {
            conv_weight: narrow(&weight.collect::<Vec<_>>()),
            conv_bias: if self.params.conv_bias.is_some() { narrow(bias) } else { Vec::new() },
            dt_bias: narrow(&sums.dt_bias),
            a_log: narrow(&a_log.collect::<Vec<_>>()),
            d: narrow(&sums.d),
            norm_weight: if self.params.norm_weight.is_some() { narrow(&sums.norm) } else { Vec::new() },
        }
    }
}

/// Gradients to the initial states, until every sequence has filled its part.
pub(crate) struct Results<T> {
    /// The convolution's and the scan's.
    states: Option<[Unfilled<T>; 2]>,
}

impl<T: Real> Results<T> {
    pub(crate) fn new(core: &Core<'_, T>, batch: usize, states: bool) -> Self {
        let dims = &core.dims;
        let of_states = || {
            let conv = dims.conv_state_shape(batch).iter().product();
            [conv, dims.ssm_state_shape(batch).iter().product()].map(Unfilled::new)
        };
        Self { states: states.then(of_states) }
    }

    pub(crate) fn target(&mut self) -> Target<'_, T> {
        self.states.as_mut().map(|states| states.each_mut().map(|state| Shared::new(state.slots())))
    }

    /// With `zxbcdt` and `params` from the same sequences.
    ///
    /// # Safety
    /// Every sequence has been through [`Backward::sequence`].
    pub(crate) unsafe fn filled(self, zxbcdt: Vec<T>, params: ParamGradients<T>) -> CoreGradients<T> {
        // SAFETY: by the caller's promise.
        let filled = |unfilled: Unfilled<T>| unsafe { unfilled.filled() };
        let (conv_state, ssm_state) = self.states.map(|[conv, ssm]| (filled(conv), filled(ssm))).unzip();
        CoreGradients { zxbcdt, conv_state, ssm_state, params }
    }
}

/// A backward pass of some sequences.
pub(crate) struct Backward<'a, T> {
    pub(super) core: &'a Core<'a, T>,
    pub(super) columns: Columns,
    pub(super) packing: Packing,
    pub(super) taps: Taps<'a, T>,
    a: Vec<T>,
    pub(super) saved: &'a CoreSaved<T>,
    pub(super) upstream: &'a CoreUpstream<'a, T>,
    threads: Threads,
    target: Target<'a, T>,
}

impl<'a, T: Real> Backward<'a, T> {
    pub(crate) fn new(
        core: &'a Core<'a, T>,
        saved: &'a CoreSaved<T>,
        upstream: &'a CoreUpstream<'a, T>,
        threads: Threads,
        target: Target<'a, T>,
    ) -> Self {
        let (columns, packing) = (core.columns(), core.packing());
        Self { core, columns, packing, taps: core.taps(), a: core.a(), saved, upstream, threads, target }
    }

    /// The sequence `at` of the batch; dy (seqlen, `d_inner`): the gradient to its output; `zxbcdt` (seqlen, `d_in_proj`) receives that
    /// to its columns, all of them.
    pub(crate) fn sequence(
        &self,
        at: usize,
        sequence: Sequence<'_, T>,
        dy: &[T],
        zxbcdt: &mut [MaybeUninit<T>],
        sums: &mut Sums,
        stop: Option<&AtomicBool>,
    ) -> Result<(), Stopped> {
        Pass { backward: self, at, sequence, dy, zxbcdt: Shared::new(zxbcdt) }.run(sums, stop)
    }

    /// Runs `sequence` for each of the batch, in blocks of `size` that each add up sums on their own.
    pub(crate) fn blocks(
        &self,
        batch: usize,
        size: usize,
        sequence: impl Fn(usize, &mut Sums) -> Result<(), Stopped> + Send + Sync,
    ) -> Result<Sums, Stopped> {
        let mut sums: Vec<_> =
            (0..batch.div_ceil(size)).map(|_| Sums::new(&self.core.dims, self.core.params.d.len())).collect();
        let nblocks = sums.len();
        let shared = Shared::new(&mut sums);
        self.threads.over_sequences().try_each(nblocks, |block| {
            // SAFETY: each block has its own sums.
            let sums = &mut unsafe { shared.part(block..block + 1) }[0];
            (block * size..((block + 1) * size).min(batch)).try_for_each(|at| sequence(at, sums))
        })?;
        let (total, others) = sums.split_at_mut(1);
        for other in others {
            total[0].add(other);
        }
        Ok(sums.swap_remove(0))
    }

    pub(crate) fn param_gradients(&self, sums: &Sums) -> ParamGradients<T> {
        self.core.param_gradients(sums, &self.a)
    }
}

/// One sequence on its way back.
pub(super) struct Pass<'a, T> {
    pub(super) backward: &'a Backward<'a, T>,
    /// Which of the batch.
    pub(super) at: usize,
    pub(super) sequence: Sequence<'a, T>,
    /// (seqlen, `d_inner`): the gradient to this sequence's output.
    pub(super) dy: &'a [T],
    /// (seqlen, `d_in_proj`): where that to its columns goes.
    pub(super) zxbcdt: Slots<'a, T>,
}

impl<T: Real> Pass<'_, T> {
    fn run(&self, sums: &mut Sums, stop: Option<&AtomicBool>) -> Result<(), Stopped> {
        let Self {
            backward: Backward { core, columns, packing, taps, saved, upstream, target, threads, .. },
            sequence,
            ..
        } = self;
        let dims = &core.dims;
        let history = sequence.history(dims);
        let raw = sequence.raw(columns, &history);
        let packer = Packer { core, columns, packing, taps, sequence, raw };
        let mut scratch = Scratch::<T>::take();
        let mut carried = false;
        room(&mut scratch.states, packing.states());
        if let Some(upstream) = upstream.ssm_state {
            let len = dims.d_ssm * dims.d_state;
            pack_states(packing, &upstream[self.at * len..][..len], &mut scratch.states);
            carried = true;
        }
        // Gradients to the convolution's outputs of the d_conv − 1 tokens after the superblock, before the SiLU.
        let mut following = vec![T::ZERO; history.len()];
        let nsuperblocks = superblocks(sequence.seqlen).len();
        for (number, tokens) in superblocks(sequence.seqlen).enumerate().rev() {
            check(stop)?;
            let conv = stage!("conv.again");
            packer.pack(tokens.clone(), true, *threads, &mut scratch);
            drop(conv);
            self.open(&tokens, &mut scratch, sums);
            let before = (number > 0 || sequence.ssm_state.is_some())
                .then(|| &saved.states[(self.at * nsuperblocks + number) * packing.states()..][..packing.states()]);
            let carry = number > 0 || target.is_some();
            self.scan(tokens.len(), before, carried, carry, &mut scratch, sums);
            following = self.close(&tokens, &raw, &following, &mut scratch, sums);
            carried = true;
        }
        if let Some([conv, ssm]) = *target {
            let part = |len: usize| self.at * len..(self.at + 1) * len;
            // SAFETY: the only access to this sequence's parts.
            let (conv, ssm) = unsafe { (conv.part(part(history.len())), ssm.part(part(dims.d_ssm * dims.d_state))) };
            unpack_states(packing, &scratch.states, ssm);
            self.history(&following, conv);
        }
        Ok(())
    }

    /// The upstream gradient of the convolution's state after the last token, at raw column `back` tokens before the next.
    pub(super) fn conv_upstream(&self, back: usize, channel: usize) -> T {
        let Dims { conv_dim, d_conv, .. } = self.backward.core.dims;
        self.backward
            .upstream
            .conv_state
            .map_or(T::ZERO, |state| state[(self.at * conv_dim + channel) * (d_conv - 1) + d_conv - 1 - back])
    }

    /// Gradients to the columns before token 0, (`conv_dim`, `d_conv` − 1).
    fn history(&self, following: &[T], state: &mut [MaybeUninit<T>]) {
        let Dims { conv_dim, d_conv, .. } = self.backward.core.dims;
        for early in 1..d_conv {
            // The column `early` tokens before token 0 is read by token t with the tap for early + t tokens back.
            let mut line = vec![T::ZERO; conv_dim];
            for t in 0..d_conv - early {
                let d_pre = &following[t * conv_dim..][..conv_dim];
                for ((line, &w), &d) in line.iter_mut().zip(self.backward.taps.tap(early + t)).zip(d_pre) {
                    *line += w * d;
                }
            }
            let back = early + self.sequence.seqlen; // from the token after the last
            for (channel, &x) in line.iter().enumerate() {
                let passed = if back < d_conv { self.conv_upstream(back, channel) } else { T::ZERO };
                state[channel * (d_conv - 1) + d_conv - 1 - early].write(x + passed);
            }
        }
    }

    /// Gate and norm: the gradient to the scan's output, packed into y, and those to z, z0 and x0.
    fn open(&self, tokens: &Range<usize>, scratch: &mut Workspace<T>, sums: &mut Sums) {
        let _stage = stage!("norm.backward");
        let (count, packing) = (tokens.len(), &self.backward.packing);
        let dy = Shared::new(room(&mut scratch.y, packing.nheads * count * packing.width));
        let nchunks = count.div_ceil(CHUNK);
        let mut partial: Vec<_> = (0..nchunks).map(|_| vec![T::ZERO; self.backward.core.dims.d_ssm]).collect();
        let shared = Shared::new(&mut partial);
        self.backward.threads.each(nchunks, |chunk| {
            // SAFETY: each chunk has its own sums.
            let d_weight = &mut unsafe { shared.part(chunk..chunk + 1) }[0];
            let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(count);
            simd::run(Open { pass: self, start: tokens.start, count, rows, dy, d_weight });
        });
        for partial in &partial {
            add(&mut sums.norm, partial);
        }
    }

    /// How many tasks the heads of a group are cut into, and how many heads each has at most.
    fn tasks_of_group(&self) -> (usize, usize) {
        let heads = self.backward.packing.nheads / self.backward.packing.ngroups;
        // Where whole sequences are the tasks, one buffer for each group is enough.
        let most = if self.backward.threads == Threads::Many { TASKS } else { 1 };
        let size = heads.div_ceil(most);
        (heads.div_ceil(size), size)
    }

    /// The heads of a superblock; what they add to the gradients of B and C stays with the tasks.
    fn scan(
        &self,
        tokens: usize,
        before: Option<&[T]>,
        carried: bool,
        carry: bool,
        scratch: &mut Workspace<T>,
        sums: &mut Sums,
    ) {
        let _stage = stage!("scan.backward");
        let packing = &self.backward.packing;
        let Workspace { x, b, c, b_transposed, c_transposed, scores, dt, y, states, dx, d_dt, tasks, .. } = scratch;
        let (head, group, state) = (tokens * packing.width, tokens * packing.state_stride, packing.state());
        let nchunks = tokens.div_ceil(CHUNK);
        let (square, across) = (nchunks * CHUNK * CHUNK, nchunks * packing.d_state * CHUNK);
        let (per_group, size) = self.tasks_of_group();
        let ntasks = packing.ngroups * per_group;
        if tasks.len() < ntasks {
            tasks.resize_with(ntasks, Default::default);
        }
        let mut heads = vec![HeadSums::default(); packing.nheads];
        let (shared_heads, shared_tasks) = (Shared::new(&mut heads), Shared::new(&mut tasks[..ntasks]));
        let dx = Shared::new(room(dx, packing.nheads * head));
        let d_dt = Shared::new(room(d_dt, packing.nheads * tokens));
        let states = Shared::new(states);
        self.backward.threads.each(ntasks, |task| {
            // SAFETY: each task has its own buffers.
            let (shared, scratch) = &mut unsafe { shared_tasks.part(task..task + 1) }[0];
            shared.reserve(across, square);
            scratch.reserve(packing.headdim, nchunks * state);
            let (g, first) = (task / per_group, task % per_group * size);
            let heads = packing.nheads / packing.ngroups;
            for at in g * heads + first..g * heads + (first + size).min(heads) {
                // SAFETY: each head belongs to one task and has its own part of each buffer.
                let (d_after, dx, d_dt, sums) = unsafe {
                    (
                        states.part(at * state..(at + 1) * state),
                        dx.part(at * head..(at + 1) * head),
                        d_dt.part(at * tokens..(at + 1) * tokens),
                        &mut shared_heads.part(at..at + 1)[0],
                    )
                };
                d_dt.fill(T::ZERO);
                *sums = simd::run(HeadBackward {
                    tokens,
                    headdim: packing.headdim,
                    d_state: packing.d_state,
                    state_stride: packing.state_stride,
                    width: packing.width,
                    x: &x[at * head..][..head],
                    b: &b[g * group..][..group],
                    c: &c[g * group..][..group],
                    b_transposed: &b_transposed[g * across..][..across],
                    c_transposed: &c_transposed[g * across..][..across],
                    scores: &scores[g * square..][..square],
                    dt: &dt[at * tokens..][..tokens],
                    a: self.backward.a[at],
                    skip: self.backward.core.skip(at),
                    state: before.map(|before| &before[at * state..][..state]),
                    dy: &y[at * head..][..head],
                    d_after,
                    carried,
                    carry,
                    dx,
                    d_dt,
                    shared,
                    shared_filled: at > g * heads + first,
                    scratch,
                });
            }
        });
        for (at, head) in heads.iter().enumerate() {
            sums.a[at] += head.a;
            if !self.backward.core.options.d_has_hdim {
                sums.d[at] += head.skip;
            }
        }
        self.gather_groups(tokens, scratch);
    }

    /// The gradients of B and C, from what the tasks of [`Pass::scan`] have added up.
    fn gather_groups(&self, tokens: usize, scratch: &mut Workspace<T>) {
        let packing = &self.backward.packing;
        let Workspace { b, c, db, dc, tasks, .. } = scratch;
        let group = tokens * packing.state_stride;
        let nchunks = tokens.div_ceil(CHUNK);
        let (per_group, _) = self.tasks_of_group();
        let tasks = Shared::new(&mut tasks[..packing.ngroups * per_group]);
        let db = Shared::new(room(db, packing.ngroups * group));
        let dc = Shared::new(room(dc, packing.ngroups * group));
        let (across, square) = (packing.d_state * CHUNK, CHUNK * CHUNK);
        self.backward.threads.each(packing.ngroups * nchunks, |at| {
            let (g, chunk) = (at / nchunks, at % nchunks);
            let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(tokens);
            let part = g * group + rows.start * packing.state_stride..g * group + rows.end * packing.state_stride;
            let of_chunk = |len: usize| chunk * len..(chunk + 1) * len;
            // SAFETY: each chunk and group has its own part of each buffer, and of those of its tasks, which are done.
            unsafe {
                let own = |task: usize| {
                    let (shared, _) = &mut tasks.part(task..task + 1)[0];
                    (
                        Shared::new(&mut shared.b_transposed).part(of_chunk(across)),
                        Shared::new(&mut shared.c_transposed).part(of_chunk(across)),
                        Shared::new(&mut shared.scores).part(of_chunk(square)),
                    )
                };
                let (db_transposed, dc_transposed, d_scores) = own(g * per_group);
                for task in g * per_group + 1..(g + 1) * per_group {
                    let (more_b, more_c, more_scores) = own(task);
                    accumulate(db_transposed, more_b);
                    accumulate(dc_transposed, more_c);
                    accumulate(d_scores, more_scores);
                }
                simd::run(GroupBackward {
                    tokens: rows.len(),
                    d_state: packing.d_state,
                    state_stride: packing.state_stride,
                    b: &b[part.clone()],
                    c: &c[part.clone()],
                    db_transposed,
                    dc_transposed,
                    d_scores,
                    db: db.part(part.clone()),
                    dc: dc.part(part),
                });
            }
        });
    }

    /// Convolution and Δ: the gradients to their raw columns. Gives what [`Pass::run`] calls `following`.
    fn close(
        &self,
        tokens: &Range<usize>,
        raw: &RawColumns<'_, T>,
        following: &[T],
        scratch: &mut Workspace<T>,
        sums: &mut Sums,
    ) -> Vec<T> {
        let _stage = stage!("conv.backward");
        let Dims { conv_dim, d_conv, nheads, .. } = self.backward.core.dims;
        let count = tokens.len();
        let nchunks = count.div_ceil(CHUNK);
        let mut preceding = vec![T::ZERO; following.len()];
        let kept = Shared::new(&mut preceding);
        let skips = if self.backward.core.options.d_has_hdim { self.backward.core.dims.d_ssm } else { 0 };
        let zeros = |len| vec![T::ZERO; len];
        let chunk_sums =
            |_| ChunkSums { conv: zeros((d_conv + 1) * conv_dim), dt_bias: zeros(nheads), d: zeros(skips) };
        let mut partial: Vec<_> = (0..nchunks).map(chunk_sums).collect();
        let shared = Shared::new(&mut partial);
        let scratch = &*scratch;
        self.backward.threads.each(nchunks, |chunk| {
            // SAFETY: each chunk has its own sums.
            let sums = &mut unsafe { shared.part(chunk..chunk + 1) }[0];
            let rows = chunk * CHUNK..((chunk + 1) * CHUNK).min(count);
            simd::run(Close { pass: self, start: tokens.start, count, rows, raw, following, kept, scratch, sums });
        });
        for partial in &partial {
            add(&mut sums.conv, &partial.conv);
            add(&mut sums.dt_bias, &partial.dt_bias);
            if skips > 0 {
                add(&mut sums.d, &partial.d);
            }
        }
        // A superblock of fewer tokens keeps what follows it.
        if count < d_conv - 1 {
            preceding[count * conv_dim..].copy_from_slice(&following[..following.len() - count * conv_dim]);
        }
        preceding
    }
}

fn add<T: Real>(sums: &mut [f64], more: &[T]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more.to_f64();
    }
}

fn accumulate<T: Real>(sums: &mut [T], more: &[T]) {
    for (sum, &more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}
