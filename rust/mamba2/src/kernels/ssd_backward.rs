//! Gradients of the scan, one head over the chunks of a superblock, from the last to the first.
//!
//! With Y = M·x + from_start ⊙ (C·S) and M = scores ∘ between · Δ (see [`super::ssd`]). Gradients of the log decays are sums over the
//! pairs of tokens that each decay lies between: a running sum of differences would cancel and lose their digits.

use std::mem::MaybeUninit;

use pulp::{Simd, WithSimd};

use super::matrix::Matrix;
use super::real::{Real, padded};
use super::rows::dot;
use super::scratch::room;
use super::ssd::{Before, CHUNK, Decays, carry, next_row, scale_panel};
use super::tile::{MAX_PANEL, OnPanels, OnTiles, Tile, on_panels, on_tiles};

/// What a head's backward needs room for.
#[derive(Debug, Default)]
pub(crate) struct HeadScratch<T> {
    /// (nchunks, `d_state`, width): the states before the chunks.
    pub(crate) states: Vec<T>,
    /// (headdim, CHUNK).
    pub(crate) x_transposed: Vec<T>,
    /// (headdim, CHUNK).
    pub(crate) dy_transposed: Vec<T>,
    /// (CHUNK, CHUNK): weights between tokens.
    pub(crate) weights: Vec<T>,
    /// (CHUNK, CHUNK): their gradients.
    pub(crate) d_weights: Vec<T>,
}

impl<T: Real> HeadScratch<T> {
    /// Grows to a head's needs; `states`: elements of the states before all chunks.
    pub(crate) fn reserve(&mut self, headdim: usize, states: usize) {
        room(&mut self.states, states);
        room(&mut self.x_transposed, headdim * CHUNK);
        room(&mut self.dy_transposed, headdim * CHUNK);
        room(&mut self.weights, CHUNK * CHUNK);
        room(&mut self.d_weights, CHUNK * CHUNK);
    }
}

/// Gradients that the heads of a task add up, for every chunk of the superblock. The first of them fills what the others add to.
#[derive(Debug, Default)]
pub(crate) struct GroupGradients<T> {
    /// (nchunks, `d_state`, CHUNK).
    pub(crate) b_transposed: Vec<T>,
    /// (nchunks, `d_state`, CHUNK).
    pub(crate) c_transposed: Vec<T>,
    /// (nchunks, CHUNK, CHUNK).
    pub(crate) scores: Vec<T>,
}

impl<T: Real> GroupGradients<T> {
    /// Grows to the needs of a superblock whose B takes `across` elements and whose scores take `square`.
    pub(crate) fn reserve(&mut self, across: usize, square: usize) {
        room(&mut self.b_transposed, across);
        room(&mut self.c_transposed, across);
        room(&mut self.scores, square);
    }
}

/// One head over the tokens of a superblock. Sizes and layouts as in [`super::ssd::HeadForward`].
pub(crate) struct HeadBackward<'a, T> {
    pub(crate) tokens: usize,
    pub(crate) headdim: usize,
    pub(crate) d_state: usize,
    pub(crate) state_stride: usize,
    pub(crate) width: usize,
    pub(crate) x: &'a [T],
    pub(crate) b: &'a [T],
    pub(crate) c: &'a [T],
    /// (nchunks, `d_state`, CHUNK).
    pub(crate) b_transposed: &'a [T],
    /// (nchunks, `d_state`, CHUNK).
    pub(crate) c_transposed: &'a [T],
    pub(crate) scores: &'a [f64],
    pub(crate) dt: &'a [T],
    pub(crate) a: T,
    pub(crate) skip: T,
    /// (`d_state`, width): the state before the superblock; None: zero.
    pub(crate) state: Option<&'a [T]>,
    /// (tokens, width).
    pub(crate) dy: &'a [T],
    /// (`d_state`, width): the gradient to the state after the superblock, becomes that to the state before it.
    pub(crate) d_after: &'a mut [T],
    /// False: `d_after` is zero, whatever it holds.
    pub(crate) carried: bool,
    /// False: nobody asks for the gradient to the state before the superblock.
    pub(crate) carry: bool,
    /// (tokens, width).
    pub(crate) dx: &'a mut [T],
    /// (tokens).
    pub(crate) d_dt: &'a mut [T],
    pub(crate) shared: &'a mut GroupGradients<T>,
    /// Whether `shared` holds what earlier heads have added, or nothing yet.
    pub(crate) shared_filled: bool,
    pub(crate) scratch: &'a mut HeadScratch<T>,
}

/// Gradients to the numbers of one head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeadSums {
    /// To A.
    pub(crate) a: f64,
    /// To D, where the head has one.
    pub(crate) skip: f64,
}

impl<T: Real> WithSimd for HeadBackward<'_, T> {
    type Output = HeadSums;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> HeadSums {
        self.recompute_states(simd);
        let mut sums = HeadSums::default();
        let mut carried = self.carried;
        for chunk in (0..self.tokens.div_ceil(CHUNK)).rev() {
            self.chunk(simd, chunk, carried, &mut sums);
            carried = true;
        }
        sums
    }
}

impl<T: Real> HeadBackward<'_, T> {
    #[inline(always)]
    fn tokens_of(&self, chunk: usize) -> usize {
        CHUNK.min(self.tokens - chunk * CHUNK)
    }

    /// Elements of one state.
    #[inline(always)]
    fn state_len(&self) -> usize {
        self.d_state * self.width
    }

    #[inline(always)]
    fn recompute_states<S: Simd>(&mut self, simd: S) {
        let len = self.state_len();
        if let Some(state) = self.state {
            self.scratch.states[..len].copy_from_slice(state);
        }
        let nchunks = self.tokens.div_ceil(CHUNK);
        for chunk in 0..nchunks.saturating_sub(1) {
            let from = chunk * CHUNK;
            let dt = &self.dt[from..from + CHUNK];
            let decays = Decays::new::<S>(dt, self.a);
            let (before, after) = self.scratch.states[chunk * len..][..2 * len].split_at_mut(len);
            let started = chunk > 0 || self.state.is_some();
            let before = if started { Before::Other(before, decays.total) } else { Before::Zero };
            let x = Matrix::new(&self.x[from * self.width..], CHUNK, self.width, self.width);
            let left = Matrix::new(&self.b[from * self.state_stride..], CHUNK, self.d_state, self.state_stride);
            let factors = &decays.kept();
            on_panels(simd, self.width, &mut Carry { rows: x, factors, left, before, state: after, width: self.width });
        }
    }

    #[inline(always)]
    fn chunk<S: Simd>(&mut self, simd: S, chunk: usize, carried: bool, sums: &mut HeadSums) {
        let (from, tokens) = (chunk * CHUNK, self.tokens_of(chunk));
        let dt = &self.dt[from..from + tokens];
        let decays = Decays::new::<S>(dt, self.a);
        let rows = |data| Matrix::new(data, tokens, self.width, self.width);
        let (x, dy) = (rows(&self.x[from * self.width..]), rows(&self.dy[from * self.width..]));
        transpose(x, self.headdim, &mut self.scratch.x_transposed);
        transpose(dy, self.headdim, &mut self.scratch.dy_transposed);

        let mut d_log = self.between_tokens(simd, chunk, dy, &decays, sums);
        self.through_states(simd, chunk, carried, &decays, &mut d_log);
        let d_dt = &mut self.d_dt[from..from + tokens];
        for t in 0..tokens {
            d_dt[t] += T::from_f64(self.a.to_f64() * d_log[t]);
            sums.a += decays.dt[t] * d_log[t];
        }

        let right = |data| Matrix::new(data, tokens, self.d_state, self.state_stride);
        on_panels(
            simd,
            self.width,
            &mut ChunkBackward {
                weights: Matrix::new(&self.scratch.weights, tokens, tokens, CHUNK).transposed(),
                dy,
                b: right(&self.b[from * self.state_stride..]),
                c: right(&self.c[from * self.state_stride..]),
                decays: &decays,
                dt,
                d_after: self.d_after,
                carried,
                carry: self.carry || chunk > 0,
                width: self.width,
                dx: &mut self.dx[from * self.width..],
            },
        );
    }

    /// Between the tokens of a chunk: makes the weights, adds to the gradients of the scores, of D and, where it is a factor, of Δ, and
    /// gives those of the log decays.
    #[inline(always)]
    fn between_tokens<S: Simd>(
        &mut self,
        simd: S,
        chunk: usize,
        dy: Matrix<'_, T>,
        decays: &Decays<T>,
        sums: &mut HeadSums,
    ) -> [f64; CHUNK] {
        let (from, tokens) = (chunk * CHUNK, dy.rows());
        let right = Matrix::new(&self.scratch.x_transposed, self.headdim, CHUNK, CHUNK);
        let (weights, d_weights) = (&mut self.scratch.weights[..], &mut self.scratch.d_weights[..]);
        let products = &mut Products { left: dy, right, depth: self.headdim, out: d_weights };
        on_panels(simd, padded::<T>(tokens), products);
        let filled = self.shared_filled;
        let mut between = [0.0; CHUNK];
        let mut d_skip = 0.0;
        for i in 0..tokens {
            next_row(&mut between, i, decays.step[i]);
            let (row, n) = (i * CHUNK, i + 1);
            d_skip += d_weights[row + i].to_f64();
            let (between, dt) = (&between[..n], &decays.dt[..n]);
            let scores = &self.scores[from * CHUNK + row..][..n];
            let d_scores = &mut self.shared.scores[from * CHUNK + row..][..n];
            let (weights, d_weights) = (&mut weights[row..][..n], &mut d_weights[row..][..n]);
            for j in 0..n {
                let pair = scores[j] * between[j];
                weights[j] = T::from_f64(pair * dt[j]);
                let before = if filled { d_scores[j] } else { T::ZERO };
                d_scores[j] = before + d_weights[j] * T::from_f64(between[j] * dt[j]);
                d_weights[j] *= T::from_f64(pair);
            }
            weights[i] = T::from_f64(scores[i] * dt[i] + self.skip.to_f64());
        }
        sums.skip += d_skip;
        crossings(d_weights, &self.dt[from..from + tokens], &mut self.d_dt[from..from + tokens])
    }

    /// Through the states before and after a chunk: adds to the gradients of B, C, Δ and the log decays.
    #[inline(always)]
    fn through_states<S: Simd>(
        &mut self,
        simd: S,
        chunk: usize,
        carried: bool,
        decays: &Decays<T>,
        d_log: &mut [f64; CHUNK],
    ) {
        let (from, tokens, len) = (chunk * CHUNK, self.tokens_of(chunk), self.state_len());
        let across = |data| Matrix::new(data, self.headdim, CHUNK, CHUNK);
        let state = (chunk > 0 || self.state.is_some()).then(|| &self.scratch.states[chunk * len..][..len]);
        let of_chunk = chunk * self.d_state * CHUNK;
        let mut kept = [T::ZERO; CHUNK]; // what each token adds to the state after the chunk, times its gradient
        let mut read = [T::ZERO; CHUNK]; // what each token reads from the state before the chunk, times its gradient
        if carried {
            on_panels(
                simd,
                padded::<T>(tokens),
                &mut StateTerms {
                    state: Matrix::new(self.d_after, self.d_state, self.headdim, self.width),
                    tokens: across(&self.scratch.x_transposed),
                    factors: &decays.kept(),
                    other: &self.b_transposed[of_chunk..],
                    dots: &mut kept,
                    out: &mut self.shared.b_transposed[of_chunk..],
                    filled: self.shared_filled,
                },
            );
        } else if !self.shared_filled {
            self.shared.b_transposed[of_chunk..][..self.d_state * CHUNK].fill(T::ZERO);
        }
        if let Some(state) = state {
            on_panels(
                simd,
                padded::<T>(tokens),
                &mut StateTerms {
                    state: Matrix::new(state, self.d_state, self.headdim, self.width),
                    tokens: across(&self.scratch.dy_transposed),
                    factors: &decays.from_start,
                    other: &self.c_transposed[of_chunk..],
                    dots: &mut read,
                    out: &mut self.shared.c_transposed[of_chunk..],
                    filled: self.shared_filled,
                },
            );
        } else if !self.shared_filled {
            self.shared.c_transposed[of_chunk..][..self.d_state * CHUNK].fill(T::ZERO);
        }
        let passed = match state {
            Some(state) if carried => decays.total.to_f64() * dot(state, &self.d_after[..len]).to_f64(),
            _ => 0.0,
        };
        let mut before = 0.0;
        for t in 0..tokens {
            let kept = kept[t].to_f64() * decays.to_end[t].to_f64();
            d_log[t] += before + passed;
            self.d_dt[from + t] += T::from_f64(kept);
            before += kept * decays.dt[t];
        }
        let mut after = 0.0;
        for t in (0..tokens).rev() {
            after += read[t].to_f64() * decays.from_start[t].to_f64();
            d_log[t] += after;
        }
    }
}

/// Gradients to the log decays of a chunk, and, added to `d_dt`, those to Δ where it stands as a factor.
///
/// `d_pairs[i, j]` is the gradient to the logarithm of the weight between tokens i ≥ j, over `dt[j]`. The log decay of token k lies
/// between all pairs j < k ≤ i.
#[inline(always)]
fn crossings<T: Real>(d_pairs: &[T], dt: &[T], d_dt: &mut [T]) -> [f64; CHUNK] {
    let tokens = dt.len();
    let mut padded_dt = [T::ZERO; CHUNK];
    padded_dt[..tokens].copy_from_slice(dt);
    let mut d_log = [0.0; CHUNK];
    let mut columns = [T::ZERO; CHUNK]; // sums of rows k and below
    for k in (0..tokens).rev() {
        for (sum, &pair) in columns.iter_mut().zip(&d_pairs[k * CHUNK..][..=k]) {
            *sum += pair;
        }
        d_dt[k] += columns[k];
        columns[k] = T::ZERO;
        d_log[k] = dot(&padded_dt, &columns).to_f64();
    }
    d_log
}

/// Columns of `rows`, of which there are `width`, as rows of CHUNK elements; those beyond the tokens are zero.
#[inline(always)]
pub(crate) fn transpose<T: Real>(rows: Matrix<'_, T>, width: usize, out: &mut [T]) {
    const BLOCK: usize = 8;
    let tokens = rows.rows();
    let mut t = 0;
    while t + BLOCK <= tokens {
        let mut p = 0;
        while p + BLOCK <= width {
            let mut block = [[T::ZERO; BLOCK]; BLOCK];
            for (r, block) in block.iter_mut().enumerate() {
                block.copy_from_slice(&rows.line(t + r)[p..p + BLOCK]);
            }
            for c in 0..BLOCK {
                let line: [T; BLOCK] = std::array::from_fn(|r| block[r][c]);
                out[(p + c) * CHUNK + t..][..BLOCK].copy_from_slice(&line);
            }
            p += BLOCK;
        }
        for r in t..t + BLOCK {
            for p in p..width {
                out[p * CHUNK + r] = rows.line(r)[p];
            }
        }
        t += BLOCK;
    }
    for r in t..tokens {
        for (p, &x) in rows.line(r)[..width].iter().enumerate() {
            out[p * CHUNK + r] = x;
        }
    }
    if tokens < CHUNK {
        for line in out.chunks_exact_mut(CHUNK).take(width) {
            line[tokens..].fill(T::ZERO);
        }
    }
}

/// The part of `left·right` at and below the diagonal, rows of CHUNK elements.
struct Products<'a, T> {
    left: Matrix<'a, T>,
    right: Matrix<'a, T>,
    depth: usize,
    out: &'a mut [T],
}

impl<S: Simd, T: Real> OnPanels<S, T> for Products<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        struct Work<'a, 'b, T>(&'b mut Products<'a, T>, usize);
        impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Work<'_, '_, T> {
            #[inline(always)]
            fn tile<const R: usize>(&mut self, simd: S, row: usize) {
                let Self(products, column) = self;
                if *column >= row + R {
                    return; // above the diagonal
                }
                let mut tile = Tile::<S, T, R, W>::zero(simd);
                tile.add_product(products.left, row, products.right, *column, 0..products.depth);
                tile.store(products.out, CHUNK, row, *column);
            }
        }
        let rows = self.left.rows();
        on_tiles::<S, T, W>(simd, rows, &mut Work(self, column));
    }
}

/// `state·tokens`, (`d_state`, tokens): its columns' dots with `other`, and, times `factors` by column, added to `out`.
struct StateTerms<'a, T> {
    /// (`d_state`, headdim).
    state: Matrix<'a, T>,
    /// (headdim, CHUNK).
    tokens: Matrix<'a, T>,
    factors: &'a [T; CHUNK],
    /// (`d_state`, CHUNK).
    other: &'a [T],
    dots: &'a mut [T; CHUNK],
    /// (`d_state`, CHUNK).
    out: &'a mut [T],
    /// Whether `out` is added to, or filled.
    filled: bool,
}

impl<S: Simd, T: Real> OnPanels<S, T> for StateTerms<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        struct Work<'a, 'b, T>(&'b mut StateTerms<'a, T>, usize);
        impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Work<'_, '_, T> {
            #[inline(always)]
            fn tile<const R: usize>(&mut self, simd: S, row: usize) {
                let Self(terms, column) = self;
                let mut tile = Tile::<S, T, R, W>::zero(simd);
                tile.add_product(terms.state, row, terms.tokens, *column, 0..terms.tokens.rows());
                tile.add_column_dots(terms.other, CHUNK, row, *column, terms.dots);
                tile.scale_columns(&terms.factors[*column..]);
                if terms.filled {
                    tile.add_to(terms.out, CHUNK, row, *column);
                } else {
                    tile.store(terms.out, CHUNK, row, *column);
                }
            }
        }
        let rows = self.state.rows();
        on_tiles::<S, T, W>(simd, rows, &mut Work(self, column));
    }
}

/// `state = decay · before + leftᵀ · (factors ⊙ rows)`.
struct Carry<'a, T> {
    rows: Matrix<'a, T>,
    factors: &'a [T; CHUNK],
    left: Matrix<'a, T>,
    before: Before<'a, T>,
    state: &'a mut [T],
    width: usize,
}

impl<S: Simd, T: Real> OnPanels<S, T> for Carry<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        let mut scaled = [const { MaybeUninit::uninit() }; CHUNK * MAX_PANEL];
        let scaled = scale_panel(self.rows, column, Tile::<S, T, 1, W>::width(), self.factors, &mut scaled);
        carry::<S, T, W>(simd, self.before, self.left, scaled, self.state, self.width, column);
    }
}

/// `dx = Δ ⊙ to_end ⊙ (B·dS) + Mᵀ·dy` on a panel, then `dS = total · dS + Cᵀ·(from_start ⊙ dy)`.
struct ChunkBackward<'a, T> {
    weights: Matrix<'a, T>,
    dy: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: Matrix<'a, T>,
    decays: &'a Decays<T>,
    dt: &'a [T],
    d_after: &'a mut [T],
    carried: bool,
    carry: bool,
    width: usize,
    dx: &'a mut [T],
}

impl<S: Simd, T: Real> OnPanels<S, T> for ChunkBackward<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        struct Work<'a, T> {
            weights: Matrix<'a, T>,
            dy: Matrix<'a, T>,
            b: Matrix<'a, T>,
            d_after: Option<Matrix<'a, T>>,
            factors: [T; CHUNK],
            column: usize,
            width: usize,
            dx: &'a mut [T],
        }
        impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Work<'_, T> {
            #[inline(always)]
            fn tile<const R: usize>(&mut self, simd: S, row: usize) {
                let mut tile = Tile::<S, T, R, W>::zero(simd);
                if let Some(d_after) = self.d_after {
                    tile.add_product(self.b, row, d_after, self.column, 0..d_after.rows());
                    tile.scale_rows(&self.factors[row..]);
                }
                tile.add_upper(self.weights, row, self.dy, self.column);
                tile.store(self.dx, self.width, row, self.column);
            }
        }
        let tokens = self.dt.len();
        let factors = self.decays.kept();
        let d_after = Matrix::new(self.d_after, self.b.columns(), self.width, self.width);
        on_tiles::<S, T, W>(
            simd,
            tokens,
            &mut Work {
                weights: self.weights,
                dy: self.dy,
                b: self.b,
                d_after: self.carried.then_some(d_after),
                factors,
                column,
                width: self.width,
                dx: self.dx,
            },
        );
        if self.carry {
            let mut scaled = [const { MaybeUninit::uninit() }; CHUNK * MAX_PANEL];
            let panel = Tile::<S, T, 1, W>::width();
            let scaled = scale_panel(self.dy, column, panel, &self.decays.from_start, &mut scaled);
            let before = if self.carried { Before::InPlace(self.decays.total) } else { Before::Zero };
            carry::<S, T, W>(simd, before, self.c, scaled, self.d_after, self.width, column);
        }
    }
}

/// Gradients to B and C of one chunk and group, from what its heads have added up.
pub(crate) struct GroupBackward<'a, T> {
    pub(crate) tokens: usize,
    pub(crate) d_state: usize,
    pub(crate) state_stride: usize,
    /// (tokens, `state_stride`).
    pub(crate) b: &'a [T],
    /// (tokens, `state_stride`).
    pub(crate) c: &'a [T],
    /// (`d_state`, CHUNK): the sums of the group's heads.
    pub(crate) db_transposed: &'a [T],
    /// (`d_state`, CHUNK).
    pub(crate) dc_transposed: &'a [T],
    /// (CHUNK, CHUNK).
    pub(crate) d_scores: &'a [T],
    /// (tokens, `state_stride`).
    pub(crate) db: &'a mut [T],
    /// (tokens, `state_stride`).
    pub(crate) dc: &'a mut [T],
}

impl<T: Real> WithSimd for GroupBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for (transposed, rows) in [(self.db_transposed, &mut *self.db), (self.dc_transposed, &mut *self.dc)] {
            for n in 0..self.d_state {
                for t in 0..self.tokens {
                    rows[t * self.state_stride + n] = transposed[n * CHUNK + t];
                }
            }
        }
        on_panels(simd, self.state_stride, &mut self);
    }
}

impl<S: Simd, T: Real> OnPanels<S, T> for GroupBackward<'_, T> {
    #[inline(always)]
    fn panel<const W: usize>(&mut self, simd: S, column: usize) {
        struct Work<'a, 'b, T>(&'b mut GroupBackward<'a, T>, usize);
        impl<S: Simd, T: Real, const W: usize> OnTiles<S, T, W> for Work<'_, '_, T> {
            #[inline(always)]
            fn tile<const R: usize>(&mut self, simd: S, row: usize) {
                let Self(group, column) = self;
                let (tokens, stride) = (group.tokens, group.state_stride);
                let d_scores = Matrix::new(group.d_scores, tokens, tokens, CHUNK);
                let (b, c) =
                    (Matrix::new(group.b, tokens, stride, stride), Matrix::new(group.c, tokens, stride, stride));
                let mut tile = Tile::<S, T, R, W>::load(simd, group.dc, stride, row, *column);
                tile.add_lower(d_scores, row, b, *column);
                tile.store(group.dc, stride, row, *column);
                let mut tile = Tile::<S, T, R, W>::load(simd, group.db, stride, row, *column);
                tile.add_upper(d_scores.transposed(), row, c, *column);
                tile.store(group.db, stride, row, *column);
            }
        }
        let rows = self.tokens;
        on_tiles::<S, T, W>(simd, rows, &mut Work(self, column));
    }
}
