//! The scan in its chunked form (paper, section 6; docs/mamba2.md, "Chunked"), one head over the chunks of a superblock.
//!
//! Blocks are packed: a head's tokens are rows of x, one after the other, padded to whole vectors; its state is (d_state, headdim), so
//! that the channels of a head are the vectors of every product.

use std::mem::MaybeUninit;

use pulp::{Simd, WithSimd};

use super::math::Math;
use super::matrix::Matrix;
use super::real::{Real, padded};
use super::tile::{MAX_PANEL, OnPanels, OnTiles, Tile, on_panels, on_tiles};

/// Tokens of a chunk.
pub(crate) const CHUNK: usize = 64;

/// `C·Bᵀ` of one chunk and group, what every head of the group shares, in f64: with Δ and D it may nearly cancel, and the norm would
/// show what it lost. Only the part at and below the diagonal is used.
pub(crate) struct Scores<'a> {
    pub(crate) tokens: usize,
    /// (tokens, `d_state`).
    pub(crate) c: &'a [f64],
    /// (`d_state`, CHUNK): the transpose of B.
    pub(crate) b_transposed: &'a [f64],
    pub(crate) d_state: usize,
    /// (tokens, CHUNK).
    pub(crate) out: &'a mut [f64],
}

impl WithSimd for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        on_panels::<S, f64, _>(simd, padded::<f64>(self.tokens), &mut self);
    }
}

impl<S: Simd> OnPanels<S, f64> for Scores<'_> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        struct Work<'a> {
            c: Matrix<'a, f64>,
            b: Matrix<'a, f64>,
            column: usize,
            out: &'a mut [f64],
        }
        impl<S: Simd, const W: usize> OnTiles<S, f64, W> for Work<'_> {
            #[inline(always)]
            fn tile<const R: usize>(&mut self, simd: S, row: usize) {
                if self.column >= row + R {
                    return; // above the diagonal
                }
                let mut tile = Tile::<S, f64, R, W>::zero(simd);
                tile.add_product(self.c, row, self.b, self.column, 0..self.b.rows());
                tile.store(self.out, CHUNK, row, self.column);
            }
        }
        let c = Matrix::new(self.c, self.tokens, self.d_state, self.d_state);
        let b = Matrix::new(self.b_transposed, self.d_state, CHUNK, CHUNK);
        on_tiles::<S, f64, W>(simd, self.tokens, &mut Work { c, b, column, out: self.out });
    }
}

/// The decays of one head over one chunk.
pub(crate) struct Decays<T> {
    /// Δ of each token.
    pub(crate) dt: [f64; CHUNK],
    /// From each token's predecessor to itself.
    pub(crate) step: [f64; CHUNK],
    /// From before the chunk to each token.
    pub(crate) from_start: [T; CHUNK],
    /// From each token to the end of the chunk.
    pub(crate) to_end: [T; CHUNK],
    /// Over the whole chunk.
    pub(crate) total: T,
}

impl<T: Real> Decays<T> {
    /// Products of the single steps, in f64: a difference of cumulative sums would lose the digits of `dA_log`.
    #[inline(always)]
    pub(crate) fn new<S: Simd>(dt: &[T], a: T) -> Self {
        let mut decays = Self {
            dt: [0.0; CHUNK],
            step: [0.0; CHUNK],
            from_start: [T::ZERO; CHUNK],
            to_end: [T::ZERO; CHUNK],
            total: T::ONE,
        };
        for ((step, wide), dt) in decays.step.iter_mut().zip(&mut decays.dt).zip(dt) {
            *wide = dt.to_f64();
            *step = Math::exp::<S>(*wide * a.to_f64());
        }
        let (mut from_start, mut to_end) = (1.0, 1.0);
        for t in 0..dt.len() {
            from_start *= decays.step[t];
            decays.from_start[t] = T::from_f64(from_start);
        }
        for t in (0..dt.len()).rev() {
            decays.to_end[t] = T::from_f64(to_end);
            to_end *= decays.step[t];
        }
        decays.total = T::from_f64(from_start);
        decays
    }

    /// What of each token is left in the state at the end of the chunk: `to_end · Δ`, 0 beyond the tokens.
    #[inline(always)]
    pub(crate) fn kept(&self) -> [T; CHUNK] {
        std::array::from_fn(|t| T::from_f64(self.to_end[t].to_f64() * self.dt[t]))
    }
}

/// Makes row i of the decays between tokens from row i − 1, in place: `between[j]` leads from token j to token i.
#[inline(always)]
pub(crate) fn next_row(between: &mut [f64; CHUNK], i: usize, step: f64) {
    for between in &mut between[..i] {
        *between *= step;
    }
    between[i] = 1.0;
}

/// One head over the tokens of a superblock: its outputs, and its state carried on.
pub(crate) struct HeadForward<'a, T> {
    pub(crate) tokens: usize,
    pub(crate) d_state: usize,
    /// Elements from one row of B or C to the next.
    pub(crate) state_stride: usize,
    /// Padded headdim: elements from one row of x, y and the state to the next.
    pub(crate) width: usize,
    /// (tokens, width).
    pub(crate) x: &'a [T],
    /// (tokens, `state_stride`).
    pub(crate) b: &'a [T],
    /// (tokens, `state_stride`).
    pub(crate) c: &'a [T],
    /// (nchunks, CHUNK, CHUNK), see [`Scores`].
    pub(crate) scores: &'a [f64],
    /// (tokens): Δ.
    pub(crate) dt: &'a [T],
    pub(crate) a: T,
    /// D, where the head has one; 0 where it has one for each channel.
    pub(crate) skip: T,
    /// (`d_state`, width).
    pub(crate) state: &'a mut [T],
    /// False: the state is zero, whatever it holds.
    pub(crate) started: bool,
    /// False: nobody asks for the state after the last token.
    pub(crate) carry: bool,
    /// (tokens, width).
    pub(crate) y: &'a mut [T],
}

impl<T: Real> WithSimd for HeadForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut weights = [T::ZERO; CHUNK * CHUNK];
        let mut started = self.started;
        for start in (0..self.tokens).step_by(CHUNK) {
            let tokens = CHUNK.min(self.tokens - start);
            let dt = &self.dt[start..start + tokens];
            let decays = Decays::new::<S>(dt, self.a);
            let scores = &self.scores[start * CHUNK..];
            let mut between = [0.0; CHUNK];
            for i in 0..tokens {
                next_row(&mut between, i, decays.step[i]);
                let row = &mut weights[i * CHUNK..][..=i];
                let terms = scores[i * CHUNK..].iter().zip(&between).zip(&decays.dt);
                for (weight, ((&score, &between), &dt)) in row.iter_mut().zip(terms) {
                    *weight = T::from_f64(score * between * dt);
                }
                row[i] = T::from_f64(scores[i * CHUNK + i] * decays.dt[i] + self.skip.to_f64());
            }
            let (from, to) = (start * self.width, (start + tokens) * self.width);
            let rows = start * self.state_stride..;
            on_panels(
                simd,
                self.width,
                &mut ChunkForward {
                    tokens,
                    width: self.width,
                    weights: Matrix::new(&weights, tokens, tokens, CHUNK),
                    x: Matrix::new(&self.x[from..to], tokens, self.width, self.width),
                    b: Matrix::new(&self.b[rows.clone()], tokens, self.d_state, self.state_stride),
                    c: Matrix::new(&self.c[rows], tokens, self.d_state, self.state_stride),
                    decays: &decays,
                    state: self.state,
                    started,
                    carry: self.carry || start + tokens < self.tokens,
                    y: &mut self.y[from..to],
                },
            );
            started = true;
        }
    }
}

/// One chunk of one head.
struct ChunkForward<'a, T> {
    tokens: usize,
    width: usize,
    weights: Matrix<'a, T>,
    x: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: Matrix<'a, T>,
    decays: &'a Decays<T>,
    state: &'a mut [T],
    started: bool,
    carry: bool,
    y: &'a mut [T],
}

impl<S: Simd, T: Real> OnPanels<S, T> for ChunkForward<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        let state = Matrix::new(self.state, self.b.columns(), self.width, self.width);
        on_tiles::<S, T, W>(
            simd,
            self.tokens,
            &mut Outputs {
                weights: self.weights,
                x: self.x,
                c: self.c,
                state: self.started.then_some(state),
                from_start: &self.decays.from_start,
                column,
                width: self.width,
                y: self.y,
            },
        );
        if self.carry {
            let mut scaled = [const { MaybeUninit::uninit() }; CHUNK * MAX_PANEL];
            let scaled = scale_panel(self.x, column, Tile::<S, T, 1, W>::width(), &self.decays.kept(), &mut scaled);
            let before = if self.started { Before::InPlace(self.decays.total) } else { Before::Zero };
            carry::<S, T, W>(simd, before, self.b, scaled, self.state, self.width, column);
        }
    }
}

/// `y = from_start ⊙ (C·S) + weights·x` on the tiles of a panel.
struct Outputs<'a, T> {
    weights: Matrix<'a, T>,
    x: Matrix<'a, T>,
    c: Matrix<'a, T>,
    state: Option<Matrix<'a, T>>,
    from_start: &'a [T; CHUNK],
    column: usize,
    width: usize,
    y: &'a mut [T],
}

impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Outputs<'_, T> {
    #[inline(always)]
    fn tile<const R: usize>(&mut self, simd: S, row: usize) {
        let mut tile = Tile::<S, T, R, W>::zero(simd);
        if let Some(state) = self.state {
            tile.add_product(self.c, row, state, self.column, 0..state.rows());
            tile.scale_rows(&self.from_start[row..]);
        }
        tile.add_lower(self.weights, row, self.x, self.column);
        tile.store(self.y, self.width, row, self.column);
    }
}

/// Room for a panel of a chunk's tokens.
pub(crate) type Panel<T> = [MaybeUninit<T>; CHUNK * MAX_PANEL];

/// Copies a panel of `rows`, `width` columns from `column` on, each row times its own factor.
#[inline(always)]
pub(crate) fn scale_panel<'a, T: Real>(
    rows: Matrix<'_, T>,
    column: usize,
    width: usize,
    factors: &[T; CHUNK],
    scaled: &'a mut Panel<T>,
) -> Matrix<'a, T> {
    let tokens = rows.rows();
    for (t, scaled) in scaled.chunks_exact_mut(width).take(tokens).enumerate() {
        for (scaled, &x) in scaled.iter_mut().zip(&rows.line(t)[column..][..width]) {
            scaled.write(x * factors[t]);
        }
    }
    // SAFETY: as many have been written.
    let scaled = unsafe { std::slice::from_raw_parts(scaled.as_ptr().cast::<T>(), tokens * width) };
    Matrix::new(scaled, tokens, width, width)
}

/// `state = decay · before + leftᵀ · scaled` on one panel.
#[inline(always)]
pub(crate) fn carry<S: Simd, T: Real, const W: usize>(
    simd: S,
    before: Before<'_, T>,
    left: Matrix<'_, T>,
    scaled: Matrix<'_, T>,
    state: &mut [T],
    width: usize,
    column: usize,
) {
    struct Work<'a, T> {
        before: Before<'a, T>,
        left: Matrix<'a, T>,
        scaled: Matrix<'a, T>,
        state: &'a mut [T],
        width: usize,
        column: usize,
    }
    impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Work<'_, T> {
        #[inline(always)]
        fn tile<const R: usize>(&mut self, simd: S, row: usize) {
            let mut tile = match self.before {
                Before::Zero => Tile::<S, T, R, W>::zero(simd),
                Before::InPlace(_) => Tile::load(simd, self.state, self.width, row, self.column),
                Before::Other(before, _) => Tile::load(simd, before, self.width, row, self.column),
            };
            if let Before::InPlace(decay) | Before::Other(_, decay) = self.before {
                tile.scale_rows(&[decay; R]);
            }
            tile.add_product(self.left, row, self.scaled, 0, 0..self.scaled.rows());
            tile.store(self.state, self.width, row, self.column);
        }
    }
    let left = left.transposed();
    on_tiles::<S, T, W>(simd, left.rows(), &mut Work { before, left, scaled, state, width, column });
}

/// The state that a chunk starts from, and by how much it decays over the chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Before<'a, T> {
    /// None.
    Zero,
    /// Where the new state goes.
    InPlace(T),
    /// Another one.
    Other(&'a [T], T),
}
