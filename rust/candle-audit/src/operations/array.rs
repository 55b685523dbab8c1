//! Arrays of f64 for computations by hand: plain loops over indices, nothing of Candle.

/// Numbers in row-major order.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub dims: Vec<usize>,
    pub data: Vec<f64>,
}

impl Array {
    /// Each element from its index.
    pub fn from_fn(dims: impl Into<Vec<usize>>, mut f: impl FnMut(&[usize]) -> f64) -> Self {
        let dims = dims.into();
        let count = dims.iter().product();
        let mut index = vec![0; dims.len()];
        let mut data = Vec::with_capacity(count);
        for _ in 0..count {
            data.push(f(&index));
            for at in (0..dims.len()).rev() {
                index[at] += 1;
                if index[at] < dims[at] {
                    break;
                }
                index[at] = 0;
            }
        }
        Self { dims, data }
    }

    /// A single number, of rank 0.
    pub fn number(value: f64) -> Self {
        Self { dims: Vec::new(), data: vec![value] }
    }

    pub fn at(&self, index: &[usize]) -> f64 {
        debug_assert_eq!(index.len(), self.dims.len());
        let offset = index.iter().zip(&self.dims).fold(0, |offset, (i, dim)| offset * dim + i);
        self.data[offset]
    }

    /// The element as an index; for arrays that hold some.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small whole numbers
    pub fn id(&self, index: &[usize]) -> usize {
        self.at(index) as usize
    }

    /// The element at `index`, with index 0 where this array has dimension 1, and missing leading dimensions.
    pub fn stretched(&self, index: &[usize]) -> f64 {
        let tail = &index[index.len() - self.dims.len()..];
        let clipped: Vec<_> = tail.iter().zip(&self.dims).map(|(i, dim)| if *dim == 1 { 0 } else { *i }).collect();
        self.at(&clipped)
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { dims: self.dims.clone(), data: self.data.iter().map(|x| f(*x)).collect() }
    }

    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.data.iter().zip(&other.data);
        Self { dims: self.dims.clone(), data: pairs.map(|(a, b)| f(*a, *b)).collect() }
    }

    /// The rows along the last dimension, each made anew.
    pub fn rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let width = self.dims[self.dims.len() - 1];
        Self { dims: self.dims.clone(), data: self.data.chunks(width).flat_map(f).collect() }
    }

    pub fn max_abs(&self) -> f64 {
        self.data.iter().fold(0.0, |max, x| max.max(x.abs()))
    }
}
