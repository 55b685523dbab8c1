//! The mixer core: everything between the two projections (docs/mamba2.md, steps 1 to 6).
//!
//! Tokens go through in superblocks. In each, rows of tokens are convolved and packed by head, then each head scans its tokens, then
//! rows are gated and normed. What is between stays in the cache, and nothing grows with seqlen but inputs and outputs.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use pulp::Simd;

use super::conv::{RawColumns, Taps};
use super::gated_norm::GatedNorm;
use super::math::Math;
use super::parallel::Threads;
use super::real::{Real, padded};
use super::ssd::CHUNK;
use crate::dims::Dims;

/// Tokens of a superblock.
pub(crate) const SUPERBLOCK: usize = 2 * CHUNK;

/// Sequences from which on each is a task of its own, rather than its parts.
pub(crate) const MANY_SEQUENCES: usize = 8;

/// What the core does beside its sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreOptions {
    /// Bounds that Δ is clamped to.
    pub dt_limit: (f64, f64),
    /// D for each channel rather than for each head.
    pub d_has_hdim: bool,
    /// Normalise before the gate rather than after it.
    pub norm_before_gate: bool,
    /// Epsilon inside the norm's root.
    pub norm_eps: f64,
}

/// The parameters between the two projections.
#[derive(Debug, Clone, Copy)]
pub struct CoreParams<'a, T> {
    /// (`conv_dim`, `d_conv`).
    pub conv_weight: &'a [T],
    /// (`conv_dim`).
    pub conv_bias: Option<&'a [T]>,
    /// (nheads).
    pub dt_bias: &'a [T],
    /// (nheads).
    pub a_log: &'a [T],
    /// (nheads), or (`d_ssm`) with [`CoreOptions::d_has_hdim`].
    pub d: &'a [T],
    /// (`d_ssm`), where there is a norm.
    pub norm_weight: Option<&'a [T]>,
}

/// A mixer core: sizes, options and parameters.
#[derive(Debug, Clone, Copy)]
pub struct Core<'a, T> {
    /// Its sizes.
    pub dims: Dims,
    /// What it does beside them.
    pub options: CoreOptions,
    /// Its parameters.
    pub params: CoreParams<'a, T>,
}

/// What goes into a core.
#[derive(Debug, Clone, Copy)]
pub struct CoreInput<'a, T> {
    /// Sequences; at least 1.
    pub batch: usize,
    /// Tokens of each; at least 1.
    pub seqlen: usize,
    /// (batch, seqlen, `d_in_proj`).
    pub zxbcdt: &'a [T],
    /// (batch, `conv_dim`, `d_conv` − 1); None: zeros.
    pub conv_state: Option<&'a [T]>,
    /// (batch, nheads, headdim, `d_state`); None: zeros.
    pub ssm_state: Option<&'a [T]>,
}

/// The work was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// An error once `stop` is true.
pub(crate) fn check(stop: Option<&AtomicBool>) -> Result<(), Stopped> {
    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) { Err(Stopped) } else { Ok(()) }
}

impl<T: Real> Core<'_, T> {
    /// Whether the parts of one sequence run in parallel, or whole sequences do.
    pub(crate) fn threads_of_sequence(batch: usize) -> Threads {
        if batch >= MANY_SEQUENCES { Threads::One } else { Threads::Many }
    }

    pub(crate) fn taps(&self) -> Taps<'_, T> {
        Taps::new(self.params.conv_weight, self.params.conv_bias, self.dims.d_conv)
    }

    /// A by head: −exp(`A_log`), finite, so that Δ = 0 times A is 0.
    pub(crate) fn a(&self) -> Vec<T> {
        let a = self.params.a_log.iter().map(|&a_log| {
            let a = T::from_f64(a_log.to_f64().exp());
            if a > T::MAX { -T::MAX } else { -a }
        });
        a.collect()
    }

    /// D of a head; 0 where there is one for each channel.
    pub(crate) fn skip(&self, head: usize) -> T {
        if self.options.d_has_hdim { T::ZERO } else { self.params.d[head] }
    }

    /// D by channel, where there is one for each.
    pub(crate) fn channel_skip(&self) -> Option<&[T]> {
        self.options.d_has_hdim.then_some(self.params.d)
    }

    pub(crate) fn gated_norm(&self) -> GatedNorm<'_, T> {
        GatedNorm {
            weight: self.params.norm_weight,
            groups: self.dims.norm_groups,
            before_gate: self.options.norm_before_gate,
            eps: T::from_f64(self.options.norm_eps),
        }
    }

    /// Δ of one token's raw columns: clamp(softplus(raw + bias)), in f64.
    #[inline(always)]
    pub(crate) fn step_sizes<S: Simd>(&self, raw: &[T], out: &mut [T]) {
        let (low, high) = self.options.dt_limit;
        for ((out, raw), bias) in out.iter_mut().zip(raw).zip(self.params.dt_bias) {
            let dt = (raw.to_f64() + bias.to_f64()).softplus::<S>();
            let dt = if dt < low { low } else { dt };
            *out = T::from_f64(if dt > high { high } else { dt });
        }
    }

    /// The slopes of [`Core::step_sizes`]: clamp's is 1 at and inside the bounds.
    #[inline(always)]
    pub(crate) fn step_slopes<S: Simd>(&self, raw: &[T], out: &mut [T]) {
        let (low, high) = self.options.dt_limit;
        let clamps = self.options.dt_limit != (0.0, f64::INFINITY);
        for ((out, raw), bias) in out.iter_mut().zip(raw).zip(self.params.dt_bias) {
            *out = T::from_f64((raw.to_f64() + bias.to_f64()).softplus_slope::<S>());
        }
        if clamps {
            for ((out, raw), bias) in out.iter_mut().zip(raw).zip(self.params.dt_bias) {
                let dt = (raw.to_f64() + bias.to_f64()).softplus::<S>();
                *out = if dt < low || dt > high { T::ZERO } else { *out };
            }
        }
    }

    pub(crate) fn columns(&self) -> Columns {
        let Dims { d_mlp, d_ssm, conv_dim, nheads, .. } = self.dims;
        let z = 2 * d_mlp;
        let xbc = z + d_ssm;
        let dt = xbc + conv_dim;
        Columns { z0: 0..d_mlp, x0: d_mlp..z, z: z..xbc, xbc: xbc..dt, dt: dt..dt + nheads }
    }

    pub(crate) fn packing(&self) -> Packing {
        let Dims { nheads, headdim, ngroups, d_state, .. } = self.dims;
        Packing { nheads, headdim, ngroups, d_state, width: padded::<T>(headdim), state_stride: padded::<T>(d_state) }
    }
}

/// The columns of a row of `zxbcdt`.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(crate) z0: Range<usize>,
    pub(crate) x0: Range<usize>,
    pub(crate) z: Range<usize>,
    pub(crate) xbc: Range<usize>,
    pub(crate) dt: Range<usize>,
}

/// How a superblock is laid out: (nheads, tokens, width) for x and y, (ngroups, tokens, `state_stride`) for B and C.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) nheads: usize,
    pub(crate) headdim: usize,
    pub(crate) ngroups: usize,
    pub(crate) d_state: usize,
    /// Padded headdim.
    pub(crate) width: usize,
    /// Padded `d_state`.
    pub(crate) state_stride: usize,
}

/// x, or B and C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    X,
    Bc,
}

/// Neighbouring channels that are worked on over all tokens of a chunk before the next: few enough to stay in the nearest cache.
#[derive(Debug, Clone)]
pub(crate) struct ChannelBlock {
    pub(crate) section: Section,
    /// Which heads of x, or groups of B and after them those of C.
    pub(crate) units: Range<usize>,
    /// Which of the convolution's channels.
    pub(crate) channels: Range<usize>,
}

/// Channels of a block, where a head or group doesn't have more.
const BLOCK: usize = 128;

impl Packing {
    /// All of the convolution's channels, in their order.
    pub(crate) fn channel_blocks(&self) -> Vec<ChannelBlock> {
        let sections = [(Section::X, self.nheads, self.headdim), (Section::Bc, 2 * self.ngroups, self.d_state)];
        let mut blocks = Vec::new();
        let mut first = 0;
        for (section, count, size) in sections {
            let step = (BLOCK / size).max(1);
            for start in (0..count).step_by(step) {
                let units = start..(start + step).min(count);
                let channels = first + units.start * size..first + units.end * size;
                blocks.push(ChannelBlock { section, units, channels });
            }
            first += count * size;
        }
        blocks
    }

    /// Channels of a head or group, and elements from one of its rows to the next.
    pub(crate) fn unit(&self, section: Section) -> (usize, usize) {
        match section {
            Section::X => (self.headdim, self.width),
            Section::Bc => (self.d_state, self.state_stride),
        }
    }

    /// Elements of the states of all heads.
    pub(crate) fn states(&self) -> usize {
        self.nheads * self.state()
    }

    /// Elements of one head's state, (`d_state`, width).
    pub(crate) fn state(&self) -> usize {
        self.d_state * self.width
    }

    pub(crate) fn group_of(&self, head: usize) -> usize {
        head / (self.nheads / self.ngroups)
    }
}

/// The superblocks of a sequence.
pub(crate) fn superblocks(seqlen: usize) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
    (0..seqlen.div_ceil(SUPERBLOCK)).map(move |at| at * SUPERBLOCK..((at + 1) * SUPERBLOCK).min(seqlen))
}

/// One sequence of a [`CoreInput`].
#[derive(Clone, Copy)]
pub(crate) struct Sequence<'a, T> {
    pub(crate) seqlen: usize,
    /// `d_in_proj`.
    pub(crate) width: usize,
    /// (seqlen, width).
    pub(crate) rows: &'a [T],
    /// (`conv_dim`, `d_conv` − 1).
    pub(crate) conv_state: Option<&'a [T]>,
    /// (nheads, headdim, `d_state`).
    pub(crate) ssm_state: Option<&'a [T]>,
}

/// The part of sequence `at` of a batch.
pub(crate) fn part_of<T>(all: &[T], batch: usize, at: usize) -> &[T] {
    let len = all.len() / batch;
    &all[at * len..(at + 1) * len]
}

impl<'a, T: Real> CoreInput<'a, T> {
    pub(crate) fn sequence(&self, at: usize) -> Sequence<'a, T> {
        self.sequence_of(at, part_of(self.zxbcdt, self.batch, at))
    }

    /// The same of `rows` rather than of its own columns.
    pub(crate) fn sequence_of(&self, at: usize, rows: &'a [T]) -> Sequence<'a, T> {
        let part = |all| part_of(all, self.batch, at);
        Sequence {
            seqlen: self.seqlen,
            width: rows.len() / self.seqlen,
            rows,
            conv_state: self.conv_state.map(part),
            ssm_state: self.ssm_state.map(part),
        }
    }
}

impl<'a, T: Real> Sequence<'a, T> {
    /// The row of one token.
    #[inline(always)]
    pub(crate) fn row(&self, t: usize) -> &'a [T] {
        &self.rows[t * self.width..(t + 1) * self.width]
    }

    /// The raw columns, after `history` as [`Sequence::history`] makes it.
    pub(crate) fn raw<'b>(&self, columns: &Columns, history: &'b [T]) -> RawColumns<'b, T>
    where
        'a: 'b,
    {
        RawColumns {
            rows: self.rows,
            stride: self.width,
            first: columns.xbc.start,
            conv_dim: columns.xbc.len(),
            history,
        }
    }

    /// The convolution's state by token: (`d_conv` − 1, `conv_dim`).
    pub(crate) fn history(&self, dims: &Dims) -> Vec<T> {
        let (rows, width) = (dims.d_conv - 1, dims.conv_dim);
        match self.conv_state {
            Some(state) => (0..rows * width).map(|at| state[at % width * rows + at / width]).collect(),
            None => vec![T::ZERO; rows * width],
        }
    }
}
