//! One token of the core, straight on the states as callers hold them.

use std::mem::MaybeUninit;

use pulp::{Simd, WithSimd};

use super::core::Core;
use super::core_forward::gated_mlp;
use super::math::Math;
use super::parallel::{Shared, Threads, Unfilled, fill};
use super::real::Real;
use super::rows::dot_fused;
use super::simd;
use crate::dims::Dims;

/// What a step takes.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a, T> {
    /// Sequences; at least 1.
    pub batch: usize,
    /// (batch, `d_in_proj`).
    pub zxbcdt: &'a [T],
    /// (batch, `conv_dim`, `d_conv` − 1).
    pub conv_state: &'a [T],
    /// (batch, nheads, headdim, `d_state`).
    pub ssm_state: &'a [T],
}

/// What a step gives.
#[derive(Debug)]
pub struct StepOutput<T> {
    /// (batch, `d_inner`).
    pub y: Vec<T>,
    /// Like the input's.
    pub conv_state: Vec<T>,
    /// Like the input's.
    pub ssm_state: Vec<T>,
}

/// Heads of a task: few enough to share out one token, enough to be worth it.
const HEADS: usize = 6;

impl<T: Real> Core<'_, T> {
    /// The next token. Equals the forward pass of one token to rounding.
    #[must_use]
    pub fn step(&self, input: &StepInput<'_, T>) -> StepOutput<T> {
        let Dims { nheads, d_inner, d_mlp, d_ssm, conv_dim, d_conv, .. } = self.dims;
        let batch = input.batch;
        let mut conv_state = Unfilled::new(input.conv_state.len());
        let mut ssm_state = Unfilled::new(input.ssm_state.len());
        let mut activated = vec![T::ZERO; batch * conv_dim];
        let mut y = vec![T::ZERO; batch * d_inner];
        let mut dt = vec![T::ZERO; batch * nheads];
        for at in 0..batch {
            let history = conv_dim * (d_conv - 1);
            simd::run(Convolve {
                core: self,
                row: &input.zxbcdt[at * self.dims.d_in_proj..][..self.dims.d_in_proj],
                history: &input.conv_state[at * history..][..history],
                after: &mut conv_state.slots()[at * history..][..history],
                out: &mut activated[at * conv_dim..][..conv_dim],
                dt: &mut dt[at * nheads..][..nheads],
            });
        }
        let (a, per_sequence) = (self.a(), nheads.div_ceil(HEADS));
        let (after, out) = (Shared::new(ssm_state.slots()), Shared::new(&mut y));
        Threads::Many.each(batch * per_sequence, |task| {
            let (at, first) = (task / per_sequence, task % per_sequence * HEADS);
            for head in first..(first + HEADS).min(nheads) {
                let size = d_ssm / nheads * self.dims.d_state;
                let state = (at * nheads + head) * size..(at * nheads + head + 1) * size;
                let channels = at * d_inner + d_mlp + head * self.dims.headdim;
                // SAFETY: each head has its own state and channels.
                let (after, y) =
                    unsafe { (after.part(state.clone()), out.part(channels..channels + self.dims.headdim)) };
                simd::run(StepHead {
                    core: self,
                    activated: &activated[at * conv_dim..][..conv_dim],
                    head,
                    a: a[head],
                    dt: dt[at * nheads + head],
                    before: &input.ssm_state[state],
                    after,
                    y,
                });
            }
        });
        for (y, row) in y.chunks_exact_mut(d_inner).zip(input.zxbcdt.chunks_exact(self.dims.d_in_proj)) {
            simd::run(Finish { core: self, row, y });
        }
        // SAFETY: all filled above.
        unsafe { StepOutput { y, conv_state: conv_state.filled(), ssm_state: ssm_state.filled() } }
    }
}

struct Convolve<'a, T> {
    core: &'a Core<'a, T>,
    row: &'a [T],
    history: &'a [T],
    after: &'a mut [MaybeUninit<T>],
    out: &'a mut [T],
    dt: &'a mut [T],
}

impl<T: Real> WithSimd for Convolve<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let d_conv = self.core.dims.d_conv;
        let raw = &self.row[self.core.columns().xbc];
        for (channel, (out, &x)) in self.out.iter_mut().zip(raw).enumerate() {
            let history = &self.history[channel * (d_conv - 1)..][..d_conv - 1];
            let after = &mut self.after[channel * (d_conv - 1)..][..d_conv - 1];
            let weight = &self.core.params.conv_weight[channel * d_conv..][..d_conv];
            let mut sum = self.core.params.conv_bias.map_or(T::ZERO, |bias| bias[channel]);
            for (&w, &x) in weight.iter().zip(history) {
                sum = w.fma::<S>(x, sum);
            }
            *out = weight[d_conv - 1].fma::<S>(x, sum);
            if let Some((last, early)) = after.split_last_mut() {
                fill(early, &history[1..]);
                last.write(x);
            }
        }
        for x in self.out.iter_mut() {
            *x = x.silu::<S>();
        }
        self.core.step_sizes::<S>(&self.row[self.core.columns().dt], self.dt);
    }
}

struct StepHead<'a, T> {
    core: &'a Core<'a, T>,
    activated: &'a [T],
    head: usize,
    a: T,
    dt: T,
    /// (headdim, `d_state`).
    before: &'a [T],
    after: &'a mut [MaybeUninit<T>],
    y: &'a mut [T],
}

impl<T: Real> WithSimd for StepHead<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { core, head, .. } = self;
        let Dims { d_ssm, headdim, ngroups, d_state, .. } = core.dims;
        let group = head / (core.dims.nheads / ngroups);
        let x = &self.activated[head * headdim..][..headdim];
        let b = &self.activated[d_ssm + group * d_state..][..d_state];
        let c = &self.activated[d_ssm + (ngroups + group) * d_state..][..d_state];
        let dt = self.dt;
        let decay = T::from_f64(Math::exp::<S>(dt.to_f64() * self.a.to_f64()));
        let mut state = vec![T::ZERO; d_state];
        let rows = self.before.chunks_exact(d_state).zip(self.after.chunks_exact_mut(d_state));
        for (p, ((before, after), (y, &x))) in rows.zip(self.y.iter_mut().zip(x)).enumerate() {
            let scaled = dt * x;
            for ((state, &before), &b) in state.iter_mut().zip(before).zip(b) {
                *state = scaled.fma::<S>(b, before * decay);
            }
            fill(after, &state);
            let skip = core.channel_skip().map_or(core.skip(head), |skip| skip[head * headdim + p]);
            *y = skip.fma::<S>(x, dot_fused::<S, T>(&state, c));
        }
    }
}

struct Finish<'a, T> {
    core: &'a Core<'a, T>,
    row: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> WithSimd for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (core, columns) = (self.core, self.core.columns());
        let (mlp, scan) = self.y.split_at_mut(core.dims.d_mlp);
        let mut roots = vec![T::ZERO; core.roots()];
        core.gated_norm().forward::<S>(scan, &self.row[columns.z], &mut roots);
        gated_mlp::<S, T>(&self.row[columns.z0], &self.row[columns.x0], mlp);
    }
}
