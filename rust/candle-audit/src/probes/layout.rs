//! Does a model give the same results for the same values, however they lie in memory?

use candle_core::{DType, Tensor};

use crate::error::Result;
use crate::finding::{Finding, Layout};
use crate::report::Report;
use crate::values::numbers;

/// Runs `f` on contiguous copies of its inputs, then with each input in other layouts in turn (as it was given, as a
/// transposed view, as a slice of something longer), and finds inputs where the results differ by more than the square root of the
/// element type's precision, relative to the largest result: 1.5e-8 in f64, 3.5e-4 in f32.
///
/// Some of Candle's operations read views wrongly and say nothing: see [`crate::operations`]. Layouts that `f` refuses with
/// an error are no fault, since nobody computes with them unawares.
///
/// ```
/// use candle_audit::probes;
/// use candle_core::{DType, Device, Tensor};
///
/// # fn main() -> candle_audit::Result<()> {
/// let x = Tensor::arange(0.0, 24.0, &Device::Cpu)?.reshape((2, 3, 4))?; // (batch, seqlen, features)
/// probes::layout(|inputs| inputs[0].sqr()?.sum(1), &[("x", &x.transpose(1, 2)?)])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Faults`] naming inputs and layouts, and the errors of `f` on contiguous inputs.
pub fn layout(
    mut f: impl FnMut(&[Tensor]) -> candle_core::Result<Tensor>,
    inputs: &[(&str, &Tensor)],
) -> Result<Report> {
    let copies = inputs.iter().map(|(_, input)| input.force_contiguous());
    let contiguous = copies.collect::<candle_core::Result<Vec<_>>>()?;
    let output = f(&contiguous)?;
    let (bound, dims, want) = (bound(output.dtype()), output.dims().to_vec(), numbers(&output)?);
    let scale = want.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    let mut findings = Vec::new();
    for (at, (name, given)) in inputs.iter().enumerate() {
        for (layout, view) in views(&contiguous[at], given)? {
            let mut arranged = contiguous.clone();
            arranged[at] = view;
            let Ok(got) = f(&arranged) else { continue };
            let difference =
                if got.dims() == dims { largest_difference(&want, &numbers(&got)?) } else { f64::INFINITY };
            if difference > bound * scale {
                let input = (*name).to_owned();
                findings.push(Finding::LayoutChangesValues { input, layout, difference, scale });
            }
        }
    }
    Report::new(findings, inputs.len()).into_result()
}

/// NaN on one side only is an infinite difference; equal infinities differ by nothing.
fn largest_difference(want: &[f64], got: &[f64]) -> f64 {
    let difference = |(a, b): (&f64, &f64)| match (a - b).abs() {
        nan if nan.is_nan() => {
            if a.is_nan() == b.is_nan() {
                0.0
            } else {
                f64::INFINITY
            }
        }
        difference => difference,
    };
    want.iter().zip(got).map(difference).fold(0.0, f64::max)
}

fn bound(dtype: DType) -> f64 {
    let precision = match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 1.0 / 1024.0,
        _ => 1.0 / 128.0,
    };
    precision.sqrt()
}

fn views(contiguous: &Tensor, given: &Tensor) -> candle_core::Result<Vec<(Layout, Tensor)>> {
    let mut views = Vec::new();
    if !given.is_contiguous() {
        views.push((Layout::Given, given.clone()));
    }
    for layout in [Layout::Transposed, Layout::Narrowed] {
        views.extend(layout.view(contiguous)?.map(|view| (layout, view)));
    }
    Ok(views)
}

impl Layout {
    /// The same values in this layout; none where the tensor's rank has no such layout.
    pub(crate) fn view(self, tensor: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let rank = tensor.rank();
        match self {
            Self::Transposed if rank >= 2 => {
                tensor.transpose(rank - 2, rank - 1)?.force_contiguous()?.transpose(rank - 2, rank - 1).map(Some)
            }
            Self::Narrowed if rank >= 1 => {
                let length = tensor.dim(rank - 1)?;
                let longer = Tensor::cat(&[tensor, tensor, tensor], rank - 1)?;
                longer.narrow(rank - 1, length, length).map(Some)
            }
            _ => Ok(None),
        }
    }
}
