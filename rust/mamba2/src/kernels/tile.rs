//! Small matrix products held in registers: the scan's inner loops.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use pulp::{NullaryFnOnce, Simd};

use super::matrix::Matrix;
use super::real::{Real, lanes, unit};

/// `R` rows by `W` vectors of a product, in registers.
#[derive(Clone, Copy)]
pub(crate) struct Tile<S: Simd, T: Real, const R: usize, const W: usize> {
    simd: S,
    sums: [[T::Vector<S>; W]; R],
}

impl<S: Simd, T: Real, const R: usize, const W: usize> Tile<S, T, R, W> {
    #[inline(always)]
    pub(crate) fn zero(simd: S) -> Self {
        Self { simd, sums: [[T::splat(simd, T::ZERO); W]; R] }
    }

    #[inline(always)]
    pub(crate) const fn width() -> usize {
        W * lanes::<S, T>()
    }

    /// The tile at (`row`, `column`) of a row-major matrix.
    #[inline(always)]
    pub(crate) fn load(simd: S, data: &[T], stride: usize, row: usize, column: usize) -> Self {
        let mut tile = Self::zero(simd);
        for r in 0..R {
            let line = &data[(row + r) * stride + column..][..Self::width()];
            for w in 0..W {
                tile.sums[r][w] = vector::<S, T>(line, w);
            }
        }
        tile
    }

    #[inline(always)]
    pub(crate) fn store(&self, data: &mut [T], stride: usize, row: usize, column: usize) {
        for r in 0..R {
            let line = &mut data[(row + r) * stride + column..][..Self::width()];
            for w in 0..W {
                // SAFETY: `line` holds W vectors, and vectors of pulp have the alignment of their elements.
                unsafe { line.as_mut_ptr().cast::<T::Vector<S>>().add(w).write_unaligned(self.sums[r][w]) };
            }
        }
    }

    /// Adds `lhs[row.., k] · rhs[k, column..]` over all k of `depth`.
    #[inline(always)]
    pub(crate) fn add_product(
        &mut self,
        lhs: Matrix<'_, T>,
        row: usize,
        rhs: Matrix<'_, T>,
        column: usize,
        depth: Range<usize>,
    ) {
        assert!(row + R <= lhs.rows && depth.end <= lhs.columns, "a tile beyond its left matrix");
        assert!(depth.end <= rhs.rows && column + Self::width() <= rhs.columns && rhs.column == 1);
        for k in depth {
            // SAFETY: asserted above; `Matrix::new` checked that the matrix lies in its slice.
            unsafe {
                let line = rhs.data.as_ptr().add(k * rhs.row + column);
                let left = lhs.data.as_ptr().add(row * lhs.row + k * lhs.column);
                let mut right = [T::splat(self.simd, T::ZERO); W];
                for w in 0..W {
                    right[w] = line.cast::<T::Vector<S>>().add(w).read_unaligned();
                }
                for r in 0..R {
                    let factor = T::splat(self.simd, *left.add(r * lhs.row));
                    for w in 0..W {
                        self.sums[r][w] = T::times_plus(self.simd, factor, right[w], self.sums[r][w]);
                    }
                }
            }
        }
    }

    /// Adds `left · right`: `left` (depth, `R`), and `right` rows that are `stride` apart.
    #[inline(always)]
    pub(crate) fn add_packed(&mut self, left: &[T], right: &[T], stride: usize) {
        let (left, _) = left.as_chunks::<R>();
        assert!(left.is_empty() || (left.len() - 1) * stride + Self::width() <= right.len(), "a tile beyond its panel");
        let mut line = right.as_ptr();
        for left in left {
            // SAFETY: asserted above.
            unsafe {
                let mut right = [T::splat(self.simd, T::ZERO); W];
                for w in 0..W {
                    right[w] = line.cast::<T::Vector<S>>().add(w).read_unaligned();
                }
                for r in 0..R {
                    let factor = T::splat(self.simd, left[r]);
                    for w in 0..W {
                        self.sums[r][w] = T::times_plus(self.simd, factor, right[w], self.sums[r][w]);
                    }
                }
                line = line.wrapping_add(stride);
            }
        }
    }

    /// Row r of the tile to `line`, as long as the tile is wide.
    #[inline(always)]
    pub(crate) fn fill_row(&self, r: usize, line: &mut [MaybeUninit<T>]) {
        assert!(line.len() == Self::width());
        for w in 0..W {
            // SAFETY: `line` holds W vectors, which are written and not read.
            unsafe { line.as_mut_ptr().cast::<T::Vector<S>>().add(w).write_unaligned(self.sums[r][w]) };
        }
    }

    /// Adds row r of the tile to `line`.
    ///
    /// # Safety
    /// `line` has been filled.
    #[inline(always)]
    pub(crate) unsafe fn add_row(&self, r: usize, line: &mut [MaybeUninit<T>]) {
        assert!(line.len() == Self::width());
        for w in 0..W {
            // SAFETY: `line` holds W vectors, and has been filled.
            unsafe {
                let at = line.as_mut_ptr().cast::<T::Vector<S>>().add(w);
                at.write_unaligned(T::plus(self.simd, at.read_unaligned(), self.sums[r][w]));
            }
        }
    }

    /// The same where `lhs` is lower triangular and the tile's rows start at its diagonal: k from 0 to each row's own.
    /// What stands above the diagonal is never read, so it may be anything.
    #[inline(always)]
    pub(crate) fn add_lower(&mut self, lhs: Matrix<'_, T>, row: usize, rhs: Matrix<'_, T>, column: usize) {
        self.add_product(lhs, row, rhs, column, 0..row);
        self.add_diagonal(lhs, row, rhs, column, |r, k| k <= r);
    }

    /// The same where `lhs` is the transpose of a lower triangular matrix: k from each row's own to the last.
    #[inline(always)]
    pub(crate) fn add_upper(&mut self, lhs: Matrix<'_, T>, row: usize, rhs: Matrix<'_, T>, column: usize) {
        self.add_diagonal(lhs, row, rhs, column, |r, k| k >= r);
        self.add_product(lhs, row, rhs, column, row + R..lhs.columns);
    }

    /// The square block of `lhs` on the diagonal, those of its elements (r, k) that `holds` picks.
    #[inline(always)]
    fn add_diagonal(
        &mut self,
        lhs: Matrix<'_, T>,
        row: usize,
        rhs: Matrix<'_, T>,
        column: usize,
        holds: impl Fn(usize, usize) -> bool,
    ) {
        assert!(row + R <= lhs.rows && row + R <= lhs.columns, "a tile beyond its left matrix");
        assert!(row + R <= rhs.rows && column + Self::width() <= rhs.columns && rhs.column == 1);
        for k in 0..R {
            // SAFETY: as in `add_product`.
            unsafe {
                let line = rhs.data.as_ptr().add((row + k) * rhs.row + column).cast::<T::Vector<S>>();
                let left = lhs.data.as_ptr().add((row + k) * lhs.column);
                for r in 0..R {
                    if holds(r, k) {
                        let factor = T::splat(self.simd, *left.add((row + r) * lhs.row));
                        for w in 0..W {
                            let right = line.add(w).read_unaligned();
                            self.sums[r][w] = T::times_plus(self.simd, factor, right, self.sums[r][w]);
                        }
                    }
                }
            }
        }
    }

    /// Multiplies each row by its own factor.
    #[inline(always)]
    pub(crate) fn scale_rows(&mut self, factors: &[T]) {
        for r in 0..R {
            let factor = T::splat(self.simd, factors[r]);
            for w in 0..W {
                self.sums[r][w] = T::times(self.simd, self.sums[r][w], factor);
            }
        }
    }

    /// Multiplies each column by its own factor: `factors` holds those from the tile's first column on.
    #[inline(always)]
    pub(crate) fn scale_columns(&mut self, factors: &[T]) {
        let factors = &factors[..Self::width()];
        for w in 0..W {
            let factor = vector::<S, T>(factors, w);
            for r in 0..R {
                self.sums[r][w] = T::times(self.simd, self.sums[r][w], factor);
            }
        }
    }

    /// Adds to `dots` the products, column by column, with the tile at (`row`, `column`) of `data`.
    #[inline(always)]
    pub(crate) fn add_column_dots(&self, data: &[T], stride: usize, row: usize, column: usize, dots: &mut [T]) {
        let dots = &mut dots[column..][..Self::width()];
        let other = Self::load(self.simd, data, stride, row, column);
        for w in 0..W {
            let mut sum = vector::<S, T>(dots, w);
            for r in 0..R {
                sum = T::times_plus(self.simd, self.sums[r][w], other.sums[r][w], sum);
            }
            // SAFETY: `dots` holds W vectors.
            unsafe { dots.as_mut_ptr().cast::<T::Vector<S>>().add(w).write_unaligned(sum) };
        }
    }

    /// Adds the tile to that at (`row`, `column`) of `data`.
    #[inline(always)]
    pub(crate) fn add_to(&self, data: &mut [T], stride: usize, row: usize, column: usize) {
        let mut sum = Self::load(self.simd, data, stride, row, column);
        for r in 0..R {
            for w in 0..W {
                sum.sums[r][w] = T::plus(self.simd, sum.sums[r][w], self.sums[r][w]);
            }
        }
        sum.store(data, stride, row, column);
    }
}

#[inline(always)]
fn vector<S: Simd, T: Real>(line: &[T], at: usize) -> T::Vector<S> {
    let line = &line[at * lanes::<S, T>()..][..lanes::<S, T>()];
    // SAFETY: the slice above holds one vector.
    unsafe { line.as_ptr().cast::<T::Vector<S>>().read_unaligned() }
}

/// Work on one panel of columns.
pub(crate) trait OnPanels<S: Simd, T: Real> {
    /// The work on the `W` vectors from `column` on.
    fn panel<const W: usize>(&mut self, simd: S, column: usize);
}

/// Runs `work` on panels that cover `width` columns, a multiple of the packing unit.
///
/// It is a function of its own to the compiler: inlined into one, all of a head's products take minutes to compile.
#[inline(always)]
pub(crate) fn on_panels<S: Simd, T: Real, P: OnPanels<S, T>>(simd: S, width: usize, work: &mut P) {
    struct Panels<'a, S, T, P> {
        simd: S,
        width: usize,
        work: &'a mut P,
        element: PhantomData<T>,
    }
    impl<S: Simd, T: Real, P: OnPanels<S, T>> NullaryFnOnce for Panels<'_, S, T, P> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let lanes = lanes::<S, T>();
            let mut column = 0;
            if 2 * lanes <= unit::<T>() {
                while column < self.width {
                    self.work.panel::<2>(self.simd, column);
                    column += 2 * lanes;
                }
            } else {
                while column < self.width {
                    self.work.panel::<1>(self.simd, column);
                    column += lanes;
                }
            }
        }
    }
    simd.vectorize(Panels { simd, width, work, element: PhantomData });
}

/// Elements of the widest panel of any machine.
pub(crate) const MAX_PANEL: usize = 32;

/// Work on the tiles of one panel, from its first row to its last.
pub(crate) trait OnTiles<S: Simd, T: Real, const W: usize> {
    /// The work on the `R` rows from `row` on.
    fn tile<const R: usize>(&mut self, simd: S, row: usize);
}

/// Work on some rows at a time.
pub(crate) trait OnRows {
    /// The work on the `R` rows from `row` on.
    fn rows<const R: usize>(&mut self, row: usize);
}

/// Runs `work` on 6, 4 or 1 rows at a time until all `rows` are done: with fewer than 4, a tile waits for its sums.
#[inline(always)]
pub(crate) fn on_rows(rows: usize, work: &mut impl OnRows) {
    let (sixes, fours) = match (rows / 6, rows % 6) {
        (sixes, 4 | 5) => (sixes, 1),
        (sixes @ 1.., 2 | 3) => (sixes - 1, 2),
        (sixes, _) => (sixes, 0),
    };
    let mut row = 0;
    for _ in 0..sixes {
        work.rows::<6>(row);
        row += 6;
    }
    for _ in 0..fours {
        work.rows::<4>(row);
        row += 4;
    }
    for row in row..rows {
        work.rows::<1>(row);
    }
}

/// Runs `work` on tiles that cover `rows` rows.
#[inline(always)]
pub(crate) fn on_tiles<S: Simd, T: Real, const W: usize>(simd: S, rows: usize, work: &mut impl OnTiles<S, T, W>) {
    struct Tiles<'a, S, T, O, const W: usize> {
        simd: S,
        work: &'a mut O,
        element: PhantomData<T>,
    }
    impl<S: Simd, T: Real, O: OnTiles<S, T, W>, const W: usize> OnRows for Tiles<'_, S, T, O, W> {
        #[inline(always)]
        fn rows<const R: usize>(&mut self, row: usize) {
            self.work.tile::<R>(self.simd, row);
        }
    }
    on_rows(rows, &mut Tiles::<S, T, _, W> { simd, work, element: PhantomData });
}
