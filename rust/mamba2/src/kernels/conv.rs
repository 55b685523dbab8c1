//! Causal depthwise convolution and SiLU over rows of tokens (docs/mamba2.md, step 2).

use pulp::Simd;

use super::real::Real;
use super::rows::{OnLanes, fused, load, on_lanes, store};

/// The raw (x, B, C) columns of one sequence, with what came before its first token.
#[derive(Clone, Copy)]
pub(crate) struct RawColumns<'a, T> {
    /// (seqlen, stride): rows of the input projection.
    pub(crate) rows: &'a [T],
    pub(crate) stride: usize,
    /// First of the columns, and how many.
    pub(crate) first: usize,
    pub(crate) conv_dim: usize,
    /// (`d_conv` − 1, `conv_dim`): the columns before token 0, oldest first.
    pub(crate) history: &'a [T],
}

impl<'a, T> RawColumns<'a, T> {
    /// The columns `back` tokens before token `t`; `back` is less than `d_conv`.
    #[inline(always)]
    pub(crate) fn before(&self, t: usize, back: usize) -> &'a [T] {
        if let Some(t) = t.checked_sub(back) {
            return &self.rows[t * self.stride + self.first..][..self.conv_dim];
        }
        let row = self.history.len() / self.conv_dim + t - back;
        &self.history[row * self.conv_dim..][..self.conv_dim]
    }
}

/// The convolution's parameters, taps first: channels are the vectors of all its loops.
#[derive(Debug)]
pub(crate) struct Taps<'a, T> {
    /// (`d_conv`, `conv_dim`), oldest token first.
    pub(crate) weight: Vec<T>,
    pub(crate) bias: Option<&'a [T]>,
    pub(crate) d_conv: usize,
    conv_dim: usize,
}

impl<'a, T: Real> Taps<'a, T> {
    /// weight (`conv_dim`, `d_conv`), bias (`conv_dim`).
    pub(crate) fn new(weight: &[T], bias: Option<&'a [T]>, d_conv: usize) -> Self {
        let conv_dim = weight.len() / d_conv;
        let taps = (0..d_conv * conv_dim).map(|at| weight[at % conv_dim * d_conv + at / conv_dim]);
        Self { weight: taps.collect(), bias, d_conv, conv_dim }
    }

    /// The weights of the tap that reads `back` tokens before the present one.
    #[inline(always)]
    pub(crate) fn tap(&self, back: usize) -> &[T] {
        &self.weight[(self.d_conv - 1 - back) * self.conv_dim..][..self.conv_dim]
    }
}

/// Channels `first` and on of one token through convolution and SiLU, to `out`; `slopes`, where there are: of the SiLU.
pub(crate) struct Convolved<'a, S, T> {
    pub(crate) taps: &'a Taps<'a, T>,
    /// The token's raw columns and those before it, latest first, of all channels.
    pub(crate) columns: &'a [&'a [T]],
    pub(crate) first: usize,
    pub(crate) out: &'a mut [T],
    pub(crate) slopes: Option<&'a mut [T]>,
    pub(crate) simd: S,
}

impl<S: Simd, T: Real> Convolved<'_, S, T> {
    #[inline(always)]
    pub(crate) fn run(mut self) {
        on_lanes(self.out.len(), &mut self);
    }
}

impl<S: Simd, T: Real> OnLanes for Convolved<'_, S, T> {
    #[inline(always)]
    fn lanes<const N: usize>(&mut self, at: usize) {
        let channel = self.first + at;
        let mut sum = self.taps.bias.map_or([T::ZERO; N], |bias| load(bias, channel));
        for (back, x) in self.columns.iter().enumerate().rev() {
            let (w, x) = (load(self.taps.tap(back), channel), load(x, channel));
            sum = fused(self.simd, w, x, sum);
        }
        if let Some(slopes) = &mut self.slopes {
            let mut slope = [T::ZERO; N];
            for i in 0..N {
                (sum[i], slope[i]) = sum[i].silu_and_slope::<S>();
            }
            store(slopes, at, slope);
        } else {
            for x in &mut sum {
                *x = x.silu::<S>();
            }
        }
        store(self.out, at, sum);
    }
}

/// `out += w ⊙ d`.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd, T: Real>(w: &[T], d: &[T], out: &mut [T]) {
    for ((out, &w), &d) in out.iter_mut().zip(w).zip(d) {
        *out = w.fma::<S>(d, *out);
    }
}
