//! Causal depthwise convolution and SiLU over rows of tokens (docs/mamba2.md, step 2).

use pulp::Simd;

use super::real::Real;
use super::rows::copy;

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
}

impl<'a, T: Real> Taps<'a, T> {
    /// weight (`conv_dim`, `d_conv`), bias (`conv_dim`).
    pub(crate) fn new(weight: &[T], bias: Option<&'a [T]>, d_conv: usize) -> Self {
        let conv_dim = weight.len() / d_conv;
        let taps = (0..d_conv * conv_dim).map(|at| weight[at % conv_dim * d_conv + at / conv_dim]);
        Self { weight: taps.collect(), bias, d_conv }
    }

    /// The weights of the tap that reads `back` tokens before the present one.
    #[inline(always)]
    pub(crate) fn tap(&self, back: usize) -> &[T] {
        let conv_dim = self.weight.len() / self.d_conv;
        &self.weight[(self.d_conv - 1 - back) * conv_dim..][..conv_dim]
    }
}

/// The convolution of channels `first` and on at token `t`, before the SiLU.
#[inline(always)]
pub(crate) fn convolve<S: Simd, T: Real>(
    taps: &Taps<'_, T>,
    raw: &RawColumns<'_, T>,
    t: usize,
    first: usize,
    out: &mut [T],
) {
    let n = out.len();
    match taps.bias {
        Some(bias) => copy(out, &bias[first..][..n]),
        None => out.fill(T::ZERO),
    }
    let w = |back| &taps.tap(back)[first..][..n];
    let x = |back| &raw.before(t, back)[first..][..n];
    // Four taps at once, the common width, save three passes over the row.
    let mut back = taps.d_conv;
    while back >= 4 {
        let (w3, w2, w1, w0) = (w(back - 1), w(back - 2), w(back - 3), w(back - 4));
        let (x3, x2, x1, x0) = (x(back - 1), x(back - 2), x(back - 3), x(back - 4));
        for c in 0..n {
            let sum = w3[c].fma::<S>(x3[c], out[c]);
            let sum = w2[c].fma::<S>(x2[c], sum);
            let sum = w1[c].fma::<S>(x1[c], sum);
            out[c] = w0[c].fma::<S>(x0[c], sum);
        }
        back -= 4;
    }
    while back > 0 {
        back -= 1;
        add_scaled::<S, T>(w(back), x(back), out);
    }
}

/// `out += w ⊙ d`.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd, T: Real>(w: &[T], d: &[T], out: &mut [T]) {
    for ((out, &w), &d) in out.iter_mut().zip(w).zip(d) {
        *out = w.fma::<S>(d, *out);
    }
}
