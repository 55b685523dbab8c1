//! The core's backward pass by rows of tokens: what comes before and after the scan's.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::conv::{RawColumns, Taps, add_scaled};
use super::core::{ChannelBlock, Section};
use super::core_backward::{Backward, ChunkSums, Pass};
use super::gated_norm::RowGradients;
use super::pack::AHEAD;
use super::parallel::{Shared, fill};
use super::real::Real;
use super::rows::{OnLanes, copy, fused, load, on_lanes, store};
use super::scratch::{Scratch, Workspace, room};
use super::simd;
use crate::dims::Dims;

/// Gate and norm, over the tokens of a chunk: gradients to the scan's output, packed, and to z, z0 and x0.
pub(super) struct Open<'a, T> {
    pub(super) pass: &'a Pass<'a, T>,
    pub(super) start: usize,
    pub(super) count: usize,
    pub(super) rows: Range<usize>,
    pub(super) dy: Shared<'a, T>,
    pub(super) d_weight: &'a mut [T],
}

impl<T: Real> WithSimd for Open<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pass, start, count, rows, dy, d_weight } = self;
        let Backward { core, columns, packing, saved, .. } = pass.backward;
        let Dims { d_inner, d_mlp, d_ssm, d_in_proj, .. } = core.dims;
        let norm = core.gated_norm();
        let zeros = |len| vec![T::ZERO; len];
        let (mut d_out, mut d_z, mut gate) = (zeros(d_inner), zeros(d_ssm), zeros(d_ssm));
        let (mut d_z0, mut d_x0) = (zeros(d_mlp), zeros(d_mlp));
        for t in rows {
            let token = start + t;
            let row = pass.sequence.row(token);
            let at = pass.at * pass.sequence.seqlen + token;
            let ahead = token + AHEAD;
            if ahead < pass.sequence.seqlen {
                simd::prefetch(&pass.sequence.row(ahead)[columns.z.clone()]);
                simd::prefetch(&saved.y[(at + AHEAD) * d_ssm..][..d_ssm]);
            }
            copy(&mut d_out, &pass.dy[token * d_inner..][..d_inner]);
            let (d_mlp_out, d_scan) = d_out.split_at_mut(d_mlp);
            let y = &saved.y[at * d_ssm..][..d_ssm];
            let roots = &saved.roots[at * core.roots()..][..core.roots()];
            norm.backward::<S>(
                y,
                &row[columns.z.clone()],
                roots,
                RowGradients { d_out: d_scan, d_z: &mut d_z, d_weight, gate: &mut gate },
            );
            let (z0, x0) = (&row[columns.z0.clone()], &row[columns.x0.clone()]);
            for i in 0..d_mlp {
                let (value, slope) = z0[i].silu_and_slope::<S>();
                d_x0[i] = d_mlp_out[i] * value;
                d_z0[i] = d_mlp_out[i] * x0[i] * slope;
            }
            for (head, d_scan) in d_scan.chunks_exact(packing.headdim).enumerate() {
                let from = (head * count + t) * packing.width;
                // SAFETY: each token's rows are accessed here alone.
                let dy = unsafe { dy.part(from..from + packing.width) };
                copy(&mut dy[..packing.headdim], d_scan);
                dy[packing.headdim..].fill(T::ZERO);
            }
            for (columns, d) in [(&columns.z0, &d_z0), (&columns.x0, &d_x0), (&columns.z, &d_z)] {
                // SAFETY: each token's columns are accessed here alone.
                let to =
                    unsafe { pass.zxbcdt.part(token * d_in_proj + columns.start..token * d_in_proj + columns.end) };
                fill(to, d);
            }
        }
    }
}

/// Convolution and Δ, over the tokens of a chunk: gradients to their raw columns.
pub(super) struct Close<'a, T> {
    pub(super) pass: &'a Pass<'a, T>,
    pub(super) start: usize,
    pub(super) count: usize,
    pub(super) rows: Range<usize>,
    pub(super) raw: &'a RawColumns<'a, T>,
    pub(super) following: &'a [T],
    pub(super) kept: Shared<'a, T>,
    pub(super) scratch: &'a Workspace<T>,
    pub(super) sums: &'a mut ChunkSums<T>,
}

impl<T: Real> WithSimd for Close<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Dims { d_in_proj, nheads, .. } = self.pass.backward.core.dims;
        for block in self.pass.backward.packing.channel_blocks() {
            self.convolution(simd, &block);
        }
        let columns = &self.pass.backward.columns.dt;
        let mut d_step = vec![T::ZERO; nheads];
        for t in self.rows.clone() {
            self.step::<S>(t, &mut d_step);
            let at = (self.start + t) * d_in_proj;
            // SAFETY: each token's columns are accessed here alone.
            fill(unsafe { self.pass.zxbcdt.part(at + columns.start..at + columns.end) }, &d_step);
        }
    }
}

/// Tokens whose convolution goes back at a time: few enough for the nearest cache.
const TOKENS: usize = 16;

impl<T: Real> Close<'_, T> {
    /// Gradients to the raw columns and to the taps of a block of channels.
    #[inline(always)]
    fn convolution<S: Simd>(&mut self, simd: S, block: &ChannelBlock) {
        let Dims { conv_dim, d_conv, d_in_proj, .. } = self.pass.backward.core.dims;
        let (pass, (first, n)) = (self.pass, (block.channels.start, block.channels.len()));
        let mut scratch = Scratch::<T>::take();
        let Workspace { d_pre, d_raw, .. } = &mut *scratch;
        let mut columns = Vec::with_capacity(TOKENS + d_conv - 1);
        for start in self.rows.clone().step_by(TOKENS) {
            let rows = start..(start + TOKENS).min(self.rows.end);
            // Gradients before the SiLU, of these tokens and of those after them that read them.
            let d_pre = room(d_pre, (rows.len() + d_conv - 1) * n);
            for (t, line) in (start..).zip(d_pre.chunks_exact_mut(n)) {
                self.before_silu::<S>(t, rows.contains(&t), block, line);
            }
            for (t, line) in rows.clone().zip(d_pre.chunks_exact(n)).take_while(|&(t, _)| t < d_conv - 1) {
                let at = t * conv_dim + first;
                // SAFETY: each token's channels are accessed here alone.
                copy(unsafe { self.kept.part(at..at + n) }, line);
            }
            let token = self.start + start;
            columns.clear();
            columns.extend((1..d_conv).rev().map(|back| self.raw.before(token, back)));
            columns.extend((token..self.start + rows.end).map(|token| self.raw.before(token, 0)));
            let d_raw = room(d_raw, rows.len() * n);
            on_lanes(
                n,
                &mut ConvBackward::<S, T> {
                    taps: &pass.backward.taps,
                    columns: &columns,
                    d_pre,
                    channels: first..first + n,
                    conv_dim,
                    d_raw,
                    sums: &mut self.sums.conv,
                    simd,
                },
            );
            for (token, d_raw) in (token..).zip(d_raw.chunks_exact_mut(n)) {
                let back = pass.sequence.seqlen - token;
                if back < d_conv && pass.backward.upstream.conv_state.is_some() {
                    for (channel, d) in d_raw.iter_mut().enumerate() {
                        *d += pass.conv_upstream(back, first + channel);
                    }
                }
                let at = token * d_in_proj + pass.backward.columns.xbc.start + first;
                // SAFETY: each token's columns are accessed here alone.
                fill(unsafe { pass.zxbcdt.part(at..at + n) }, d_raw);
            }
        }
    }

    /// The gradient to the convolution's output at token `t` of the superblock or after it; `own`: the chunk's own token.
    #[inline(always)]
    fn before_silu<S: Simd>(&mut self, t: usize, own: bool, block: &ChannelBlock, line: &mut [T]) {
        let Self { pass, count, scratch, following, .. } = *self;
        let (conv_dim, first) = (pass.backward.core.dims.conv_dim, block.channels.start);
        if t >= count {
            let after = (t - count) * conv_dim + first;
            if after < following.len() {
                copy(line, &following[after..][..line.len()]);
            } else {
                line.fill(T::ZERO);
            }
            return;
        }
        let (size, padded) = pass.backward.packing.unit(block.section);
        let ngroups = pass.backward.packing.ngroups;
        for (unit, line) in block.units.clone().zip(line.chunks_exact_mut(size)) {
            let (packed, at) = match block.section {
                Section::X => (&scratch.dx, unit),
                Section::Bc if unit < ngroups => (&scratch.db, unit),
                Section::Bc => (&scratch.dc, unit - ngroups),
            };
            let from = (at * count + t) * padded;
            copy(line, &packed[from..][..size]);
            if let (Section::X, Some(skip)) = (block.section, pass.backward.core.channel_skip()) {
                let (dy, input) = (&scratch.y[from..][..size], &scratch.x[from..][..size]);
                add_scaled::<S, T>(&skip[unit * size..], dy, line);
                if own {
                    add_scaled::<S, T>(dy, input, &mut self.sums.d[unit * size..]);
                }
            }
        }
        let slopes = &scratch.slopes[t * conv_dim + first..];
        for (d, &slope) in line.iter_mut().zip(slopes) {
            *d *= slope;
        }
    }

    /// Gradients to the raw columns of Δ at token `t`.
    #[inline(always)]
    fn step<S: Simd>(&mut self, t: usize, out: &mut [T]) {
        let raw = &self.pass.sequence.row(self.start + t)[self.pass.backward.columns.dt.clone()];
        self.pass.backward.core.step_slopes::<S>(raw, out);
        for (head, (out, sum)) in out.iter_mut().zip(&mut self.sums.dt_bias).enumerate() {
            *out *= self.scratch.d_dt[head * self.count + t];
            *sum += *out;
        }
    }
}

/// The convolution's backward on some tokens and channels.
struct ConvBackward<'a, S, T> {
    taps: &'a Taps<'a, T>,
    /// The raw columns, of all channels, of the `d_conv` − 1 tokens before these and of these.
    columns: &'a [&'a [T]],
    /// (tokens + `d_conv` − 1, channels): gradients to the outputs of these tokens and of those after them.
    d_pre: &'a [T],
    channels: Range<usize>,
    conv_dim: usize,
    /// (tokens, channels): gradients to the raw columns.
    d_raw: &'a mut [T],
    /// (`d_conv` + 1, `conv_dim`): of the taps, by tokens back, and the bias; added to.
    sums: &'a mut [T],
    simd: S,
}

impl<S: Simd, T: Real> OnLanes for ConvBackward<'_, S, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let (n, channel, d_conv) = (self.channels.len(), self.channels.start + at, self.taps.d_conv);
        let tokens = self.columns.len() + 1 - d_conv;
        for t in 0..tokens {
            let mut d = [T::ZERO; N];
            for ahead in 0..d_conv {
                let w: [T; N] = load(self.taps.tap(ahead), channel);
                let d_pre: [T; N] = load(self.d_pre, (t + ahead) * n + at);
                d = fused(self.simd, w, d_pre, d);
            }
            store(self.d_raw, t * n + at, d);
        }
        for back in 0..d_conv {
            let mut sum: [T; N] = load(self.sums, back * self.conv_dim + channel);
            for (t, columns) in self.columns[d_conv - 1 - back..][..tokens].iter().enumerate() {
                let (x, d_pre): ([T; N], [T; N]) = (load(columns, channel), load(self.d_pre, t * n + at));
                sum = fused(self.simd, x, d_pre, sum);
            }
            store(self.sums, back * self.conv_dim + channel, sum);
        }
        let mut sum: [T; N] = load(self.sums, d_conv * self.conv_dim + channel);
        for t in 0..tokens {
            let d_pre: [T; N] = load(self.d_pre, t * n + at);
            for i in 0..N {
                sum[i] += d_pre[i];
            }
        }
        store(self.sums, d_conv * self.conv_dim + channel, sum);
    }
}
