//! Holds Candle's values and gradients against those by hand.

use candle_core::{DType, Device, Tensor, Var};

use super::array::Array;
use super::case::{Case, Input, Values};
use super::numeric::{Numeric, Slopes};
use super::{Cell, Layout, Row, Verdict};
use crate::graph::{backward, guard};
use crate::values::{noise, numbers};

/// An error above this is wrong in any type.
const WRONG: f64 = 1e-3;

/// What rounding explains.
fn rounding(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-9 } else { 2e-5 }
}

const LAYOUTS: [Layout; 3] = [Layout::Transposed, Layout::Narrowed, Layout::Broadcast];

pub(super) fn row(case: &Case) -> Row {
    let mut cells = Vec::new();
    for batch in [1, 2] {
        let inputs = (case.inputs)(batch);
        cells.extend(cells_of(case, batch, &inputs, None));
        for (at, input) in inputs.iter().enumerate().filter(|(_, input)| input.views) {
            for layout in LAYOUTS.into_iter().filter(|layout| suits(*layout, input)) {
                cells.extend(cells_of(case, batch, &inputs, Some((at, layout))));
            }
        }
    }
    Row { operation: case.name, cells }
}

fn suits(layout: Layout, input: &Input) -> bool {
    input.dims.len() >= if layout == Layout::Narrowed { 1 } else { 2 }
}

/// Both element types: what is computed by hand is the same for them.
fn cells_of(case: &Case, batch: usize, inputs: &[Input], view: Option<(usize, Layout)>) -> Vec<Cell> {
    let mut arrays: Vec<_> = inputs.iter().map(|input| input.array(case.name)).collect();
    if let Some((at, Layout::Broadcast)) = view {
        let first = arrays[at].clone();
        arrays[at] = Array::from_fn(first.dims.clone(), |index| {
            let mut index = index.to_vec();
            index[0] = 0;
            first.at(&index)
        });
    }
    let want = (case.reference)(&arrays);
    let seed = format!("{} upstream", case.name);
    let upstream = Array { data: noise(0, &seed, -1.0, 1.0, want.data.len()), dims: want.dims.clone() };
    let trial =
        Trial { case, inputs, view, numeric: Numeric { case, inputs: &arrays, upstream: &upstream }, want: &want };
    let slopes = trial.slopes();
    let cell = |dtype| {
        let verdict = trial.verdict(dtype, &slopes).unwrap_or_else(|message| Verdict::Unsupported { message });
        let layout = view.map_or(Layout::Contiguous, |(_, layout)| layout);
        Cell { dtype, batch, layout, view_of: view.map(|(at, _)| inputs[at].name), verdict }
    };
    [DType::F32, DType::F64].map(cell).to_vec()
}

struct Trial<'a> {
    case: &'a Case,
    inputs: &'a [Input],
    view: Option<(usize, Layout)>,
    numeric: Numeric<'a>,
    want: &'a Array,
}

/// An operand as a variable, and as the view of it that the operation gets.
struct Operand {
    var: Option<Var>,
    given: Tensor,
}

impl Trial<'_> {
    fn verdict(&self, dtype: DType, slopes: &[Option<Vec<Slopes>>]) -> Result<Verdict, String> {
        let operands = guard(|| (0..self.inputs.len()).map(|at| self.operand(at, dtype)).collect())?;
        let operands: Vec<Operand> = operands;
        let given: Vec<_> = operands.iter().map(|operand| operand.given.clone()).collect();
        let output = guard(|| (self.case.forward)(&given))?;
        if output.dims() != self.want.dims {
            return Ok(Verdict::WrongValue { error: f64::INFINITY });
        }
        let got = values(&output)?;
        let value_error = relative(&got, &self.want.data, self.want.max_abs());
        if value_error > WRONG {
            return Ok(Verdict::WrongValue { error: value_error });
        }
        let verdict = self.gradients(dtype, &operands, &output, slopes)?;
        let imprecise = value_error > rounding(dtype) && verdict.severity() <= 1;
        Ok(if imprecise { Verdict::Imprecise { error: value_error, gradient: None } } else { verdict })
    }

    fn gradients(
        &self,
        dtype: DType,
        operands: &[Operand],
        output: &Tensor,
        slopes: &[Option<Vec<Slopes>>],
    ) -> Result<Verdict, String> {
        let named = |at: usize| self.inputs[at].name;
        let Some(first) = slopes.iter().position(Option::is_some) else { return Ok(Verdict::Right) };
        if !output.track_op() {
            return Ok(Verdict::NoBackward { input: named(first), message: None });
        }
        let upstream = self.numeric.upstream;
        let loss = guard(|| {
            let upstream = Tensor::from_vec(upstream.data.clone(), upstream.dims.as_slice(), &Device::Cpu)?;
            output.mul(&upstream.to_dtype(output.dtype())?)?.sum_all()
        })?;
        let store = match backward(&loss) {
            Ok(store) => store,
            Err(message) => return Ok(Verdict::NoBackward { input: named(first), message: Some(message) }),
        };
        let mut worst = Verdict::Right;
        let mut sum = 0.0;
        for (at, operand) in operands.iter().enumerate() {
            let (Some(slopes), Some(var)) = (&slopes[at], &operand.var) else { continue };
            let Some(gradient) = store.get(var) else {
                return Ok(Verdict::NoBackward { input: named(at), message: None });
            };
            let gradient = values(&self.as_given(at, gradient)?)?;
            sum += gradient.iter().sum::<f64>();
            let error = outside(&gradient, slopes);
            let found = grade(error, rounding(dtype), named(at));
            worst = if found.severity() > worst.severity() { found } else { worst };
        }
        if self.case.kinks && worst == Verdict::Right {
            let differentiable: Vec<_> = (0..slopes.len()).filter(|at| slopes[*at].is_some()).collect();
            let error = outside(&[sum], &[self.numeric.together(&differentiable)]);
            worst = grade(error, rounding(dtype), named(first));
        }
        Ok(worst)
    }

    /// By finite differences; none for operands that aren't floating point.
    fn slopes(&self) -> Vec<Option<Vec<Slopes>>> {
        let of = |(at, input): (usize, &Input)| {
            let slopes = input.is_float().then(|| self.numeric.gradient(at))?;
            let repeats = matches!(self.view, Some((viewed, Layout::Broadcast)) if viewed == at);
            Some(if repeats { summed(&slopes, input.dims[0]) } else { slopes })
        };
        self.inputs.iter().enumerate().map(of).collect()
    }

    fn layout(&self, at: usize) -> Layout {
        self.view.filter(|(viewed, _)| *viewed == at).map_or(Layout::Contiguous, |(_, layout)| layout)
    }

    fn operand(&self, at: usize, dtype: DType) -> candle_core::Result<Operand> {
        let (input, array) = (&self.inputs[at], &self.numeric.inputs[at]);
        let tensor = Tensor::from_vec(array.data.clone(), array.dims.as_slice(), &Device::Cpu)?;
        let constant = |dtype| Ok(Operand { var: None, given: tensor.to_dtype(dtype)? });
        match input.values {
            Values::Ids(_) | Values::Fixed(_) => return constant(DType::U32),
            Values::Mask => return constant(DType::U8),
            Values::Floats(..) | Values::Repeated(_) => {}
        }
        let (tensor, rank) = (tensor.to_dtype(dtype)?, array.dims.len());
        let (var, given) = match self.layout(at) {
            Layout::Transposed => {
                let var = Var::from_tensor(&tensor.transpose(rank - 2, rank - 1)?.force_contiguous()?)?;
                let given = var.transpose(rank - 2, rank - 1)?;
                (var, given)
            }
            Layout::Narrowed => {
                let length = tensor.dim(rank - 1)?;
                let var = Var::from_tensor(&Tensor::cat(&[&tensor, &tensor, &tensor], rank - 1)?)?;
                let given = var.narrow(rank - 1, length, length)?;
                (var, given)
            }
            Layout::Broadcast => {
                let var = Var::from_tensor(&tensor.narrow(0, 0, 1)?.force_contiguous()?)?;
                let given = var.broadcast_as(tensor.shape())?;
                (var, given)
            }
            Layout::Contiguous | Layout::Given => {
                let var = Var::from_tensor(&tensor)?;
                let given = var.as_tensor().clone();
                (var, given)
            }
        };
        Ok(Operand { var: Some(var), given })
    }

    /// A variable's gradient in the order of the view's elements.
    fn as_given(&self, at: usize, gradient: &Tensor) -> Result<Tensor, String> {
        let rank = gradient.rank();
        guard(|| match self.layout(at) {
            Layout::Transposed => gradient.transpose(rank - 2, rank - 1),
            Layout::Narrowed => {
                let length = gradient.dim(rank - 1)? / 3;
                gradient.narrow(rank - 1, length, length)
            }
            Layout::Broadcast | Layout::Contiguous | Layout::Given => Ok(gradient.clone()),
        })
    }
}

/// Slopes to the one element that stands for many.
fn summed(slopes: &[Slopes], repeats: usize) -> Vec<Slopes> {
    let once = slopes.len() / repeats;
    let sum = |at: usize, side: fn(&Slopes) -> f64| slopes.iter().skip(at).step_by(once).map(side).sum();
    (0..once).map(|at| Slopes { low: sum(at, |s| s.low), high: sum(at, |s| s.high) }).collect()
}

fn grade(error: f64, rounding: f64, input: &'static str) -> Verdict {
    if error > WRONG {
        Verdict::WrongGradient { input, error }
    } else if error > rounding {
        Verdict::Imprecise { error, gradient: Some(input) }
    } else {
        Verdict::Right
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f64>, String> {
    numbers(tensor).map_err(|error| error.to_string())
}

/// The largest difference by the largest element; infinite where one is NaN.
fn relative(got: &[f64], want: &[f64], scale: f64) -> f64 {
    let differences = got.iter().zip(want).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, |max: f64, x| if x.is_nan() { f64::INFINITY } else { max.max(x) });
    if scale > 0.0 { largest / scale } else { largest }
}

/// How far the gradient lies outside the slopes of both sides, by the largest slope.
fn outside(gradient: &[f64], slopes: &[Slopes]) -> f64 {
    let nearest: Vec<_> =
        gradient.iter().zip(slopes).map(|(g, s)| g.clamp(s.low.min(s.high), s.high.max(s.low))).collect();
    let scale = slopes.iter().fold(0.0, |max: f64, s| max.max(s.low.abs()).max(s.high.abs()));
    if gradient.len() == slopes.len() { relative(gradient, &nearest, scale) } else { f64::INFINITY }
}
