//! The core's backward pass by rows of tokens: what comes before and after the scan's.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::conv::{RawColumns, add_scaled};
use super::core::{ChannelBlock, Section};
use super::core_backward::{ChunkSums, Pass};
use super::gated_norm::RowGradients;
use super::parallel::{Shared, fill};
use super::real::Real;
use super::rows::copy;
use super::scratch::Workspace;
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
        let (core, columns, packing) = (pass.core, &pass.columns, &pass.packing);
        let Dims { d_inner, d_mlp, d_ssm, d_in_proj, .. } = core.dims;
        let norm = core.gated_norm();
        let zeros = |len| vec![T::ZERO; len];
        let (mut d_out, mut d_z, mut gate) = (zeros(d_inner), zeros(d_ssm), zeros(d_ssm));
        let (mut d_z0, mut d_x0) = (zeros(d_mlp), zeros(d_mlp));
        for t in rows {
            let token = start + t;
            let row = pass.sequence.row(token);
            let at = pass.at * pass.sequence.seqlen + token;
            copy(&mut d_out, &pass.dy[token * d_inner..][..d_inner]);
            let (d_mlp_out, d_scan) = d_out.split_at_mut(d_mlp);
            let y = &pass.saved.y[at * d_ssm..][..d_ssm];
            let roots = &pass.saved.roots[at * core.roots()..][..core.roots()];
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
                    unsafe { pass.target.zxbcdt.part(at * d_in_proj + columns.start..at * d_in_proj + columns.end) };
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
    fn with_simd<S: Simd>(mut self, _: S) {
        let Dims { d_in_proj, nheads, .. } = self.pass.core.dims;
        for block in self.pass.packing.channel_blocks() {
            self.convolution::<S>(&block);
        }
        let columns = &self.pass.columns.dt;
        let mut d_step = vec![T::ZERO; nheads];
        for t in self.rows.clone() {
            self.step::<S>(t, &mut d_step);
            let at = (self.pass.at * self.pass.sequence.seqlen + self.start + t) * d_in_proj;
            // SAFETY: each token's columns are accessed here alone.
            fill(unsafe { self.pass.target.zxbcdt.part(at + columns.start..at + columns.end) }, &d_step);
        }
    }
}

impl<T: Real> Close<'_, T> {
    /// Gradients to the raw columns and to the taps of a block of channels.
    #[inline(always)]
    fn convolution<S: Simd>(&mut self, block: &ChannelBlock) {
        let Dims { conv_dim, d_conv, d_in_proj, .. } = self.pass.core.dims;
        let (rows, pass) = (self.rows.clone(), self.pass);
        let (first, n) = (block.channels.start, block.channels.len());
        // Gradients before the SiLU, of these tokens and of those after them that read them.
        let mut d_pre = vec![T::ZERO; (rows.len() + d_conv - 1) * n];
        for (t, line) in (rows.start..).zip(d_pre.chunks_exact_mut(n)) {
            self.before_silu::<S>(t, rows.contains(&t), block, line);
        }
        let mut d_raw = vec![T::ZERO; n];
        for t in rows.clone() {
            let token = self.start + t;
            let line = |ahead: usize| &d_pre[(t - rows.start + ahead) * n..][..n];
            if t < d_conv - 1 {
                let at = t * conv_dim + first;
                // SAFETY: each token's channels are accessed here alone.
                unsafe { self.kept.part(at..at + n) }.copy_from_slice(line(0));
            }
            d_raw.fill(T::ZERO);
            for ahead in 0..d_conv {
                add_scaled::<S, T>(&pass.taps.tap(ahead)[first..], line(ahead), &mut d_raw);
                let sums = &mut self.sums.conv[ahead * conv_dim + first..][..n];
                add_scaled::<S, T>(&self.raw.before(token, ahead)[first..], line(0), sums);
            }
            for (sum, &d) in self.sums.conv[d_conv * conv_dim + first..].iter_mut().zip(line(0)) {
                *sum += d;
            }
            let back = pass.sequence.seqlen - token;
            if back < d_conv && pass.upstream.conv_state.is_some() {
                for (channel, d) in d_raw.iter_mut().enumerate() {
                    *d += pass.conv_upstream(back, first + channel);
                }
            }
            let at = (pass.at * pass.sequence.seqlen + token) * d_in_proj + pass.columns.xbc.start + first;
            // SAFETY: each token's columns are accessed here alone.
            fill(unsafe { pass.target.zxbcdt.part(at..at + n) }, &d_raw);
        }
    }

    /// The gradient to the convolution's output at token `t` of the superblock or after it; `own`: the chunk's own token.
    #[inline(always)]
    fn before_silu<S: Simd>(&mut self, t: usize, own: bool, block: &ChannelBlock, line: &mut [T]) {
        let Self { pass, count, scratch, following, .. } = *self;
        let (conv_dim, first) = (pass.core.dims.conv_dim, block.channels.start);
        if t >= count {
            let after = (t - count) * conv_dim + first;
            if after < following.len() {
                copy(line, &following[after..][..line.len()]);
            }
            return;
        }
        let (size, padded) = pass.packing.unit(block.section);
        let ngroups = pass.packing.ngroups;
        for (unit, line) in block.units.clone().zip(line.chunks_exact_mut(size)) {
            let (packed, at) = match block.section {
                Section::X => (&scratch.dx, unit),
                Section::Bc if unit < ngroups => (&scratch.db, unit),
                Section::Bc => (&scratch.dc, unit - ngroups),
            };
            let from = (at * count + t) * padded;
            copy(line, &packed[from..][..size]);
            if let (Section::X, Some(skip)) = (block.section, pass.core.channel_skip()) {
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
        let raw = &self.pass.sequence.row(self.start + t)[self.pass.columns.dt.clone()];
        self.pass.core.step_slopes::<S>(raw, out);
        for (head, (out, sum)) in out.iter_mut().zip(&mut self.sums.dt_bias).enumerate() {
            *out *= self.scratch.d_dt[head * self.count + t];
            *sum += *out;
        }
    }
}
