//! From rows of the input projection to what the heads of a superblock read: convolved, by head and group, with Δ.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::conv::{Convolved, RawColumns, Taps};
use super::core::{ChannelBlock, Columns, Core, Packing, Section, Sequence};
use super::matrix::Matrix;
use super::parallel::{Shared, Threads};
use super::real::Real;
use super::rows::copy;
use super::scratch::{Workspace, room};
use super::simd;
use super::ssd::{CHUNK, Scores};
use super::ssd_backward::transpose;

/// One sequence, ready to be packed.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a, T> {
    pub(crate) core: &'a Core<'a, T>,
    pub(crate) columns: &'a Columns,
    pub(crate) packing: &'a Packing,
    pub(crate) taps: &'a Taps<'a, T>,
    pub(crate) sequence: &'a Sequence<'a, T>,
    pub(crate) raw: RawColumns<'a, T>,
}

impl<T: Real> Packer<'_, T> {
    /// Packs the superblock `tokens` into x, b, c, scores and dt of `scratch`; for a backward also `b_transposed`,
    /// `c_transposed` and slopes.
    pub(crate) fn pack(&self, tokens: Range<usize>, backward: bool, threads: Threads, scratch: &mut Workspace<T>) {
        let Packing { nheads, ngroups, d_state, width, state_stride, .. } = *self.packing;
        let count = tokens.len();
        let nchunks = count.div_ceil(CHUNK);
        let across = if backward { ngroups * nchunks * d_state * CHUNK } else { 0 };
        let slopes = if backward { count * self.core.dims.conv_dim } else { 0 };
        let packed = Packed {
            x: Shared::new(room(&mut scratch.x, nheads * count * width)),
            b: Shared::new(room(&mut scratch.b, ngroups * count * state_stride)),
            c: Shared::new(room(&mut scratch.c, ngroups * count * state_stride)),
            b_transposed: Shared::new(room(&mut scratch.b_transposed, across)),
            c_transposed: Shared::new(room(&mut scratch.c_transposed, across)),
            scores: Shared::new(room(&mut scratch.scores, ngroups * nchunks * CHUNK * CHUNK)),
            dt: Shared::new(room(&mut scratch.dt, nheads * count)),
            slopes: Shared::new(room(&mut scratch.slopes, slopes)),
        };
        let blocks = self.packing.channel_blocks();
        let chunk = |chunk| PackChunk { packer: self, start: tokens.start, count, nchunks, chunk, backward, packed };
        threads.each(nchunks * blocks.len(), |task| {
            let (at, block) = (task / blocks.len(), &blocks[task % blocks.len()]);
            simd::run(Convolve { chunk: chunk(at), block });
        });
        // Needs B and C of all blocks.
        threads.each(nchunks, |at| simd::run(Prepare { chunk: chunk(at) }));
    }
}

/// Tokens that rows are asked of the memory ahead of their turn.
pub(crate) const AHEAD: usize = 2;

/// Where a superblock is packed; each chunk fills its part.
#[derive(Clone, Copy)]
struct Packed<'a, T> {
    x: Shared<'a, T>,
    b: Shared<'a, T>,
    c: Shared<'a, T>,
    b_transposed: Shared<'a, T>,
    c_transposed: Shared<'a, T>,
    scores: Shared<'a, f64>,
    dt: Shared<'a, T>,
    slopes: Shared<'a, T>,
}

/// One chunk of a superblock.
#[derive(Clone, Copy)]
struct PackChunk<'a, T> {
    packer: &'a Packer<'a, T>,
    start: usize,
    count: usize,
    nchunks: usize,
    chunk: usize,
    backward: bool,
    packed: Packed<'a, T>,
}

impl<T: Real> PackChunk<'_, T> {
    /// Its tokens, in the superblock.
    #[inline(always)]
    fn rows(&self) -> Range<usize> {
        self.chunk * CHUNK..((self.chunk + 1) * CHUNK).min(self.count)
    }
}

/// Some channels of a chunk, convolved.
struct Convolve<'a, 'b, T> {
    chunk: PackChunk<'a, T>,
    block: &'b ChannelBlock,
}

impl<T: Real> WithSimd for Convolve<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Packer { taps, raw, .. } = self.chunk.packer;
        let mut line = vec![T::ZERO; self.block.channels.len()];
        let mut columns = Vec::with_capacity(taps.d_conv);
        for t in self.chunk.rows() {
            let ahead = self.chunk.start + t + AHEAD;
            if ahead < self.chunk.packer.sequence.seqlen {
                simd::prefetch(&raw.before(ahead, 0)[self.block.channels.clone()]);
            }
            columns.clear();
            columns.extend((0..taps.d_conv).map(|back| raw.before(self.chunk.start + t, back)));
            Convolved::<S, T> {
                taps,
                columns: &columns,
                first: self.block.channels.start,
                out: &mut line,
                slopes: self.chunk.slopes(t, self.block),
                simd,
            }
            .run();
            self.chunk.scatter(t, self.block, &line);
        }
    }
}

/// Δ and scores of a chunk.
struct Prepare<'a, T> {
    chunk: PackChunk<'a, T>,
}

impl<T: Real> WithSimd for Prepare<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.chunk.rows();
        let Packing { nheads, ngroups, .. } = *self.chunk.packer.packing;
        let mut dt = vec![T::ZERO; nheads];
        for t in rows.clone() {
            self.chunk.step_sizes::<S>(t, &mut dt);
        }
        for group in 0..ngroups {
            self.chunk.scores(simd, group, &rows);
        }
    }
}

impl<'a, T: Real> PackChunk<'a, T> {
    /// Where the slopes of token `t` go, for a backward.
    #[inline(always)]
    fn slopes(&self, t: usize, block: &ChannelBlock) -> Option<&'a mut [T]> {
        let row = t * self.packer.core.dims.conv_dim;
        let channels = row + block.channels.start..row + block.channels.end;
        // SAFETY: each token's slopes are accessed here alone.
        self.backward.then(|| unsafe { self.packed.slopes.part(channels) })
    }

    #[inline(always)]
    fn scatter(&self, t: usize, block: &ChannelBlock, line: &[T]) {
        let (size, padded) = self.packer.packing.unit(block.section);
        let ngroups = self.packer.packing.ngroups;
        for (unit, from) in block.units.clone().zip(line.chunks_exact(size)) {
            let (packed, unit) = match block.section {
                Section::X => (&self.packed.x, unit),
                Section::Bc if unit < ngroups => (&self.packed.b, unit),
                Section::Bc => (&self.packed.c, unit - ngroups),
            };
            let start = (unit * self.count + t) * padded;
            // SAFETY: each token's rows are accessed here alone.
            let to = unsafe { packed.part(start..start + padded) };
            copy(&mut to[..size], from);
            to[size..].fill(T::ZERO);
        }
    }

    #[inline(always)]
    fn step_sizes<S: Simd>(&self, t: usize, line: &mut [T]) {
        let Packer { core, columns, sequence, .. } = *self.packer;
        core.step_sizes::<S>(&sequence.row(self.start + t)[columns.dt.clone()], line);
        for (head, &dt) in line.iter().enumerate() {
            let at = head * self.count + t;
            // SAFETY: each token's Δ is accessed here alone.
            let to = unsafe { self.packed.dt.part(at..at + 1) };
            to[0] = dt;
        }
    }

    #[inline(always)]
    fn scores<S: Simd>(&self, simd: S, group: usize, rows: &Range<usize>) {
        let Packing { d_state, state_stride, .. } = *self.packer.packing;
        let tokens = rows.len();
        let from = (group * self.count + rows.start) * state_stride;
        let (across, square) = (d_state * CHUNK, CHUNK * CHUNK);
        let at = group * self.nchunks + self.chunk;
        // SAFETY: these are of this chunk alone, whose rows have been written.
        unsafe {
            let rows = from..from + tokens * state_stride;
            let matrix = |rows| Matrix::new(rows, tokens, d_state, state_stride);
            let (b, c) = (matrix(&*self.packed.b.part(rows.clone())), matrix(&*self.packed.c.part(rows)));
            if self.backward {
                for (matrix, out) in [(b, &self.packed.b_transposed), (c, &self.packed.c_transposed)] {
                    transpose(matrix, d_state, out.part(at * across..(at + 1) * across));
                }
            }
            let mut wide_c = vec![0.0; tokens * d_state];
            let mut wide_b = vec![0.0; across];
            for (t, wide_c) in wide_c.chunks_exact_mut(d_state).enumerate() {
                for (wide, c) in wide_c.iter_mut().zip(c.line(t)) {
                    *wide = c.to_f64();
                }
                for (n, b) in b.line(t).iter().enumerate() {
                    wide_b[n * CHUNK + t] = b.to_f64();
                }
            }
            let out = self.packed.scores.part(at * square..(at + 1) * square);
            Scores { tokens, c: &wide_c, b_transposed: &wide_b, d_state, out }.with_simd(simd);
        }
    }
}
