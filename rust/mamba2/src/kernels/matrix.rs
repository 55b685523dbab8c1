//! Matrices in slices.

use std::ops::Range;

/// A matrix in a slice, element (r, c) at `r · row + c · column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// Rows one after the other, `stride` elements apart.
    #[inline(always)]
    pub(crate) fn new(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(rows == 0 || columns == 0 || (rows - 1) * stride + columns <= data.len(), "a matrix beyond its slice");
        Self { data, rows, columns, row: stride, column: 1 }
    }

    /// The same numbers with rows and columns exchanged.
    #[inline(always)]
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row: self.column, column: self.row, ..self }
    }

    /// Some of its rows and columns.
    #[inline(always)]
    pub(crate) fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && columns.end <= self.columns, "a part beyond its matrix");
        let start = (rows.start * self.row + columns.start * self.column).min(self.data.len());
        Self { data: &self.data[start..], rows: rows.len(), columns: columns.len(), ..self }
    }

    #[inline(always)]
    pub(crate) fn at(self, r: usize, c: usize) -> T {
        self.data[r * self.row + c * self.column]
    }

    #[inline(always)]
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    #[inline(always)]
    pub(crate) fn columns(self) -> usize {
        self.columns
    }

    /// Row r of a matrix whose rows lie in one piece.
    #[inline(always)]
    pub(crate) fn line(self, r: usize) -> &'a [T] {
        &self.data[r * self.row..][..self.columns]
    }
}
