//! Products of large matrices: the projections (blocked as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
//! Multiplication", 2008).
//!
//! The right operand is packed in panels of [`unit`] columns, and the left one, unless its rows lie in one piece, in panels of [`ROWS`] rows,
//! each over at most [`depth_of_slab`] of the inner dimension: rows of the left stay in the nearest cache while a block of the right goes by
//! in the next one. Over a [`SHALLOW`] inner dimension that isn't worth it. Every element is the sum of the same terms in the same order for any number of threads.

use std::mem::MaybeUninit;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::matrix::Matrix;
use super::parallel::{Shared, Threads};
use super::real::{Real, lanes, unit};
use super::scratch::{Scratch, room};
use super::simd;
use super::tile::{MAX_PANEL, OnRows, Tile, on_rows};

/// Rows of a packed panel, as many as the largest tile has.
const ROWS: usize = 6;

/// Rows of the left operand that are packed at a time, a multiple of [`ROWS`].
const SLAB: usize = 341 * ROWS;

/// Panels of the right operand that a task packs for itself.
const PANELS: usize = 4;

/// Tasks to cut a product into, where each still has enough rows to make up for packing its block of the right operand.
const TASKS: usize = 32;
const ROWS_OF_TASK: usize = 512;

/// Tasks to cut it into all the same, down to fewer rows.
const LEAST_TASKS: usize = 6;
const LEAST_ROWS: usize = 48;

/// Panels of the left operand that are packed by one task.
const PANELS_OF_TASK: usize = 16;

/// Inner dimension up to which operands are read where they lie, whichever way they do: all rows of a tile come from the nearest cache.
const SHALLOW: usize = 64;

/// The inner dimension is cut into slabs of at most so many elements.
const fn depth_of_slab<T>() -> usize {
    3072 / size_of::<T>()
}

/// The slabs of the inner dimension, of nearly the same depth.
fn slabs<T>(depth: usize) -> impl Iterator<Item = Range<usize>> {
    let size = depth.div_ceil(depth.div_ceil(depth_of_slab::<T>()).max(1)).max(1);
    (0..depth.div_ceil(size).max(1)).map(move |at| at * size..((at + 1) * size).min(depth))
}

/// A right operand, packed once for several products.
pub(crate) struct Packed<T> {
    depth: usize,
    columns: usize,
    /// (slabs, panels, depth of the slab, unit).
    data: Vec<T>,
}

impl<T: Real> Packed<T> {
    pub(crate) fn new(right: Matrix<'_, T>) -> Self {
        let (depth, columns) = (right.rows(), right.columns());
        let panels = columns.div_ceil(unit::<T>());
        let mut data = vec![T::ZERO; panels * unit::<T>() * depth];
        for slab in slabs::<T>(depth) {
            let to = &mut data[slab.start * panels * unit::<T>()..slab.end * panels * unit::<T>()];
            simd::run(PackRight { from: right, panels: 0..panels, slab, to });
        }
        Self { depth, columns, data }
    }

    fn slab(&self, slab: &Range<usize>) -> &[T] {
        let width = self.columns.next_multiple_of(unit::<T>());
        &self.data[slab.start * width..slab.end * width]
    }
}

/// A right operand.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a, T> {
    Plain(Matrix<'a, T>),
    Packed(&'a Packed<T>),
}

impl<T: Real> Right<'_, T> {
    /// Inner dimension and columns.
    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Plain(matrix) => (matrix.rows(), matrix.columns()),
            Self::Packed(packed) => (packed.depth, packed.columns),
        }
    }
}

/// Whether a product is what it writes, or is added to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Fill,
    Add,
}

/// `left·right` to `out`, row by row. With [`To::Add`], `out` has been filled before.
pub(crate) fn product_into<T: Real>(
    left: Matrix<'_, T>,
    right: Right<'_, T>,
    out: &mut [MaybeUninit<T>],
    to: To,
    threads: Threads,
) {
    let (depth, columns) = right.sizes();
    assert!(left.columns() == depth && out.len() == left.rows() * columns, "a product of matrices that don't fit");
    let out = Shared::new(out);
    let npanels = columns.div_ceil(unit::<T>());
    let blocks = npanels.div_ceil(PANELS).max(1);
    let direct = left.column == 1 || (left.row == 1 && depth <= SHALLOW);
    let mut scratch = (!direct).then(Scratch::<T>::take);
    let largest = slabs::<T>(depth).map(|slab| slab.len()).max().unwrap_or(0);
    let rows_packed = left.rows().min(SLAB).next_multiple_of(ROWS);
    let packed = scratch.as_mut().map_or(&mut [][..], |scratch| room(&mut scratch.left, rows_packed * largest));
    for start in (0..left.rows()).step_by(SLAB) {
        let rows = start..(start + SLAB).min(left.rows());
        for slab in slabs::<T>(depth) {
            if !direct {
                pack_left(left, &rows, &slab, packed, threads);
            }
            let size = rows_of_task(rows.len(), blocks);
            let parts = rows.len().div_ceil(size);
            let packed = &*packed;
            threads.each(parts * blocks, |task| {
                let (part, block) = (task % parts, task / parts);
                let first = rows.start + part * size;
                let part = first..(first + size).min(rows.end);
                let panels = block * PANELS..((block + 1) * PANELS).min(npanels);
                let lhs = if direct {
                    Left::Direct(left.part(part.clone(), slab.clone()))
                } else {
                    Left::Packed(&packed[(part.start - rows.start) * slab.len()..])
                };
                let to = if slab.start == 0 { to } else { To::Add };
                let multiply = |right: Panels<'_, T>| {
                    simd::run(Block {
                        left: lhs,
                        right,
                        rows: part.clone(),
                        first_panel: panels.start,
                        npanels: panels.len(),
                        depth: slab.len(),
                        columns,
                        to,
                        out,
                    });
                };
                let size = slab.len() * unit::<T>();
                match right {
                    Right::Packed(packed) => {
                        multiply(Panels::packed(
                            &packed.slab(&slab)[panels.start * size..panels.end * size],
                            slab.len(),
                        ));
                    }
                    Right::Plain(matrix) if depth <= SHALLOW && matrix.column == 1 && columns % unit::<T>() == 0 => {
                        multiply(Panels::in_place(matrix, panels.start));
                    }
                    Right::Plain(matrix) => {
                        let mut scratch = Scratch::<T>::take();
                        let data = room(&mut scratch.right, panels.len() * size);
                        let (panels, slab) = (panels.clone(), slab.clone());
                        let depth = slab.len();
                        simd::run(PackRight { from: matrix, panels, slab, to: &mut *data });
                        multiply(Panels::packed(data, depth));
                    }
                }
            });
        }
    }
}

/// Rows of a task, where each block of columns is cut into parts of as many rows.
fn rows_of_task(rows: usize, blocks: usize) -> usize {
    let parts = TASKS.div_ceil(blocks).min(rows / ROWS_OF_TASK);
    let least = LEAST_TASKS.div_ceil(blocks).min(rows / LEAST_ROWS);
    rows.div_ceil(parts.max(least).max(1)).next_multiple_of(ROWS)
}

fn pack_left<T: Real>(left: Matrix<'_, T>, rows: &Range<usize>, slab: &Range<usize>, to: &mut [T], threads: Threads) {
    let npanels = rows.len().div_ceil(ROWS);
    let size = ROWS * slab.len();
    let to = Shared::new(&mut to[..npanels * size]);
    threads.each(npanels.div_ceil(PANELS_OF_TASK), |task| {
        let panels = task * PANELS_OF_TASK..((task + 1) * PANELS_OF_TASK).min(npanels);
        let rows = rows.start + panels.start * ROWS..(rows.start + panels.end * ROWS).min(rows.end);
        // SAFETY: each panel is packed by one task.
        let to = unsafe { to.part(panels.start * size..panels.end * size) };
        simd::run(PackLeft { from: left.part(rows, slab.clone()), to });
    });
}

/// Panels of [`ROWS`] rows, each by columns; rows that aren't there are zero.
struct PackLeft<'a, T> {
    /// Its columns lie in one piece.
    from: Matrix<'a, T>,
    to: &'a mut [T],
}

impl<T: Real> WithSimd for PackLeft<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let columns = self.from.transposed();
        for (panel, to) in self.to.chunks_exact_mut(ROWS * columns.rows()).enumerate() {
            for (k, to) in to.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
                let line = &columns.line(k)[panel * ROWS..];
                match line.first_chunk() {
                    Some(line) => *to = *line,
                    None => *to = std::array::from_fn(|r| line.get(r).copied().unwrap_or(T::ZERO)),
                }
            }
        }
    }
}

/// Panels of [`unit`] columns, each by rows; columns that aren't there are zero.
struct PackRight<'a, T> {
    from: Matrix<'a, T>,
    panels: Range<usize>,
    slab: Range<usize>,
    to: &'a mut [T],
}

impl<T: Real> WithSimd for PackRight<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { from, panels, slab, to } = self;
        let (width, depth) = (unit::<T>(), slab.len());
        let first = panels.start * width;
        let from = from.part(slab, first..(panels.end * width).min(from.columns()));
        if from.column == 1 {
            for k in 0..depth {
                for (panel, line) in from.line(k).chunks(width).enumerate() {
                    let to = &mut to[(panel * depth + k) * width..][..width];
                    if line.len() == width {
                        to.copy_from_slice(&line[..width]);
                    } else {
                        to[..line.len()].copy_from_slice(line);
                        to[line.len()..].fill(T::ZERO);
                    }
                }
            }
        } else {
            let columns = from.transposed();
            for (panel, to) in to.chunks_exact_mut(width * depth).enumerate() {
                for first in (0..width).step_by(EIGHT) {
                    transpose_eight(columns, panel * width + first, &mut to[first..], width);
                }
            }
        }
    }
}

const EIGHT: usize = 8;

/// Eight rows of `from` as columns of `to`, `stride` elements from one of its rows to the next; rows that aren't there are zero.
#[inline(always)]
fn transpose_eight<T: Real>(from: Matrix<'_, T>, first: usize, to: &mut [T], stride: usize) {
    let depth = from.columns();
    let mut k = 0;
    if first + EIGHT <= from.rows() {
        let lines: [&[T]; EIGHT] = std::array::from_fn(|r| from.line(first + r));
        while k + EIGHT <= depth {
            let block: [[T; EIGHT]; EIGHT] = std::array::from_fn(|r| std::array::from_fn(|c| lines[r][k + c]));
            for c in 0..EIGHT {
                let line: [T; EIGHT] = std::array::from_fn(|r| block[r][c]);
                to[(k + c) * stride..][..EIGHT].copy_from_slice(&line);
            }
            k += EIGHT;
        }
    }
    for k in k..depth {
        for r in 0..EIGHT {
            to[k * stride + r] = if first + r < from.rows() { from.at(first + r, k) } else { T::ZERO };
        }
    }
}

/// The rows of a task's part of the left operand.
#[derive(Clone, Copy)]
enum Left<'a, T> {
    /// (rows, depth).
    Direct(Matrix<'a, T>),
    /// (panels, depth, [`ROWS`]).
    Packed(&'a [T]),
}

/// Panels of [`unit`] columns of a right operand.
#[derive(Clone, Copy)]
struct Panels<'a, T> {
    data: &'a [T],
    /// Elements from one panel to the next, and from a row to the next.
    panel: usize,
    row: usize,
}

impl<'a, T: Real> Panels<'a, T> {
    /// data (panels, depth, unit).
    fn packed(data: &'a [T], depth: usize) -> Self {
        Self { data, panel: depth * unit::<T>(), row: unit::<T>() }
    }

    /// The panels from `first` on of a matrix whose rows lie in one piece, and are whole units.
    fn in_place(matrix: Matrix<'a, T>, first: usize) -> Self {
        Self { data: &matrix.data[first * unit::<T>()..], panel: unit::<T>(), row: matrix.row }
    }

    /// One of them, (depth, unit).
    #[inline(always)]
    fn matrix(self, panel: usize, depth: usize) -> Matrix<'a, T> {
        Matrix::new(&self.data[panel * self.panel..], depth, unit::<T>(), self.row)
    }
}

/// A part of a product: some rows by some panels of columns.
struct Block<'a, T> {
    left: Left<'a, T>,
    right: Panels<'a, T>,
    rows: Range<usize>,
    first_panel: usize,
    npanels: usize,
    depth: usize,
    /// Of the whole product.
    columns: usize,
    to: To,
    out: Shared<'a, MaybeUninit<T>>,
}

impl<T: Real> WithSimd for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.left {
            Left::Packed(_) => {
                for row in (0..self.rows.len()).step_by(ROWS) {
                    self.row_of_tiles::<S, ROWS>(simd, row);
                }
            }
            Left::Direct(_) => on_rows(self.rows.len(), &mut Direct { simd, block: &self }),
        }
    }
}

struct Direct<'a, 'b, S, T> {
    simd: S,
    block: &'b Block<'a, T>,
}

impl<S: Simd, T: Real> OnRows for Direct<'_, '_, S, T> {
    #[inline(always)]
    fn rows<const R: usize>(&mut self, row: usize) {
        self.block.row_of_tiles::<S, R>(self.simd, row);
    }
}

impl<T: Real> Block<'_, T> {
    /// The `R` rows from `row` on; fewer where the part ends.
    #[inline(always)]
    fn row_of_tiles<S: Simd, const R: usize>(&self, simd: S, row: usize) {
        let (width, lanes) = (unit::<T>(), lanes::<S, T>());
        for panel in 0..self.npanels {
            if 2 * lanes <= width {
                for column in (0..width).step_by(2 * lanes) {
                    self.tile::<S, R, 2>(simd, row, panel, column);
                }
            } else {
                self.tile::<S, R, 1>(simd, row, panel, 0);
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const W: usize>(&self, simd: S, row: usize, panel: usize, column: usize) {
        let (depth, width) = (self.depth, Tile::<S, T, R, W>::width());
        let first = (self.first_panel + panel) * unit::<T>() + column;
        if first >= self.columns {
            return;
        }
        let (height, width_here) = (R.min(self.rows.len() - row), width.min(self.columns - first));
        let line = |r: usize| {
            let start = (self.rows.start + row + r) * self.columns + first;
            // SAFETY: each element is accessed by one task alone.
            unsafe { self.out.part(start..start + width_here) }
        };
        for r in 0..height {
            simd::prefetch(line(r));
        }
        let right = self.right.matrix(panel, depth);
        let mut tile = Tile::<S, T, R, W>::zero(simd);
        match self.left {
            Left::Packed(left) => tile.add_packed(&left[row * depth..][..R * depth], &right.data[column..], right.row),
            Left::Direct(left) => tile.add_product(left, row, right, column, 0..depth),
        }
        if height == R && width_here == width {
            for r in 0..R {
                match self.to {
                    To::Fill => tile.fill_row(r, line(r)),
                    // SAFETY: filled before.
                    To::Add => unsafe { tile.add_row(r, line(r)) },
                }
            }
        } else {
            for r in 0..height {
                let mut whole = [MaybeUninit::new(T::ZERO); MAX_PANEL];
                tile.fill_row(r, &mut whole[..width]);
                for (to, x) in line(r).iter_mut().zip(&whole) {
                    // SAFETY: `whole` is filled, and so has been `to` where something is added to it.
                    unsafe {
                        to.write(match self.to {
                            To::Fill => x.assume_init(),
                            To::Add => to.assume_init() + x.assume_init(),
                        });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::parallel::Unfilled;

    /// Small whole numbers: their products and sums are exact in any order.
    fn numbers<T: Real>(len: usize, seed: usize) -> Vec<T> {
        (0..len).map(|at| T::from_usize((at * 7 + at / 5 + seed) % 11) - T::from_usize(5)).collect()
    }

    fn check<T: Real>(m: usize, k: usize, n: usize) {
        for (left_transposed, right_transposed) in [(false, true), (true, false), (false, false)] {
            let matrix = |data, rows, columns, transposed| {
                if transposed {
                    Matrix::new(data, columns, rows, rows).transposed()
                } else {
                    Matrix::new(data, rows, columns, columns)
                }
            };
            let (left, right) = (numbers::<T>(m * k, 1), numbers::<T>(k * n, 2));
            let (left, right) = (matrix(&left, m, k, left_transposed), matrix(&right, k, n, right_transposed));
            let packed = Packed::new(right);
            let element = |at: usize| (0..k).fold(T::ZERO, |sum, q| sum + left.at(at / n, q) * right.at(q, at % n));
            let sampled: Vec<_> = (0..m * n).step_by(1 + m * n * k / 1_000_000).map(|at| (at, element(at))).collect();
            for right in [Right::Plain(right), Right::Packed(&packed)] {
                for threads in [Threads::One, Threads::Many] {
                    let mut out = Unfilled::new(m * n);
                    product_into(left, right, out.slots(), To::Fill, threads);
                    product_into(left, right, out.slots(), To::Add, threads);
                    // SAFETY: filled by the product.
                    let out = unsafe { out.filled() };
                    for &(at, sum) in &sampled {
                        assert!(
                            out[at] == sum + sum,
                            "({m}, {k}) · ({k}, {n}) at {at}: {:?}, not {sum:?} twice",
                            out[at]
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_all_sizes_are_exact() {
        for (m, k, n) in [
            (1, 1, 1),
            (5, 3, 2),
            (6, 16, 16),
            (7, 9, 17),
            (33, 100, 31),
            (64, 64, 296),
            (100, 1, 65),
            (13, 1000, 20), // slabs of the inner dimension
            (2100, 5, 7),   // slabs of rows
            (600, 800, 70), // rows cut into parts, far apart
        ] {
            check::<f32>(m, k, n);
            check::<f64>(m, k, n);
        }
    }

    #[test]
    fn a_product_over_nothing_is_zero() {
        let mut out = Unfilled::<f32>::new(6);
        let (left, right) = (Matrix::new(&[], 2, 0, 0), Matrix::new(&[], 0, 3, 3));
        product_into(left, Right::Plain(right), out.slots(), To::Fill, Threads::One);
        // SAFETY: filled by the product.
        assert_eq!(unsafe { out.filled() }, [0.0; 6]);
    }
}
