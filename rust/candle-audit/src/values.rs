//! Values of tensors as plain numbers, and variables that return to theirs.

use candle_core::{DType, Tensor, Var};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};

/// All elements, in row-major order, in f64.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.detach().to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
}

/// A tensor with the shape, the element type and the device of `like`.
pub(crate) fn tensor_like(values: Vec<f64>, like: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from_vec(values, like.shape(), like.device())?.to_dtype(like.dtype())?)
}

/// How many elements are NaN or infinite.
pub(crate) fn non_finite(values: &[f64]) -> usize {
    values.iter().filter(|x| !x.is_finite()).count()
}

/// The only element of an f64 tensor.
///
/// # Errors
/// [`Error::DType`] and [`Error::Shape`] for any other tensor.
pub(crate) fn scalar(what: &str, tensor: &Tensor) -> Result<f64> {
    require_f64(what, tensor)?;
    if tensor.elem_count() != 1 {
        let got = tensor.dims().to_vec();
        return Err(Error::Shape { what: what.to_owned(), expected: "one element".to_owned(), got });
    }
    Ok(tensor.detach().flatten_all()?.get(0)?.to_scalar()?)
}

pub(crate) fn require_f64(what: &str, tensor: &Tensor) -> Result<()> {
    if tensor.dtype() == DType::F64 {
        return Ok(());
    }
    Err(Error::DType { what: what.to_owned(), expected: DType::F64.as_str(), got: tensor.dtype().as_str() })
}

/// The root of the mean square; 1 where all are zero or there are none.
#[allow(clippy::cast_precision_loss)] // a count of elements is far below 2^52
pub(crate) fn scale(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|x| x * x).sum();
    if squares == 0.0 { 1.0 } else { (squares / values.len() as f64).sqrt() }
}

/// The numbers that belong to a seed and a name, whatever else was drawn before.
pub(crate) fn noise(seed: u64, name: &str, low: f64, high: f64, count: usize) -> Vec<f64> {
    // FNV-1a; the same on every platform and in every release.
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut rng = ChaCha8Rng::seed_from_u64(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..count).map(|_| rng.random_range(low..high)).collect()
}

/// Variables that get their values back bit by bit, on every way out.
pub(crate) struct Saved(Vec<(Var, Tensor)>);

impl Saved {
    pub(crate) fn of<'a>(vars: impl IntoIterator<Item = &'a Var>) -> Result<Self> {
        let copies = vars.into_iter().map(|var| Ok((var.clone(), var.as_detached_tensor().copy()?)));
        copies.collect::<Result<_>>().map(Self)
    }

    /// Puts the values back.
    pub(crate) fn restore(mut self) -> Result<()> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        let mut first = Ok(());
        for (var, value) in std::mem::take(&mut self.0) {
            first = first.and(var.set(&value).map_err(Error::from));
        }
        first
    }
}

/// For errors and panics in between: nobody is left to hear of a second error.
impl Drop for Saved {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}
