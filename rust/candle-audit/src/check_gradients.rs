//! Are the gradients right? Finite differences along random directions, variable by variable, in f64.

use std::fmt;

use candle_core::{Tensor, Var};

use crate::differences::slope;
use crate::error::{Error, Result};
use crate::graph::backward;
use crate::values::{Saved, noise, numbers, require_f64, scalar, scale, tensor_like};
use crate::variables::Variables;

/// How many of its own error estimates a slope may be off.
const ERRORS: f64 = 4.0;

/// A slope that is known to no better than this part of itself can't tell a right gradient from a wrong one…
const VAGUE: f64 = 0.1;

/// …unless it is that small a part of the loss, and so are the gradients.
const NEGLIGIBLE: f64 = 1e-7;

/// What [`check_gradients`] does.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How many random directions are tried in each variable.
    pub directions: usize,
    /// The seed of the directions. A variable's directions depend on the seed and its name only.
    pub seed: u64,
    /// The relative error that is allowed beside what the differences' own estimate explains. Candle's GELU has constants of six
    /// digits in its gradient, so this is 1e-5 by default; models without such operations hold 1e-9.
    pub relative: f64,
    /// Only these variables, by name or pattern (`*` stands for any text). All by default.
    pub only: Option<Vec<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { directions: 3, seed: 0, relative: 1e-5, only: None }
    }
}

/// What one direction says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// The gradient is right, as far as the differences can tell.
    Agrees,
    /// The differences are too uncertain: the loss is not smooth here, or not finite.
    Undecided,
    /// There's no gradient.
    Missing,
    /// The gradient is wrong.
    Differs,
}

/// The slope of the loss along one direction in one variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Direction {
    /// By the gradient; none where the backward pass gave none.
    pub analytic: Option<f64>,
    /// By finite differences.
    pub numeric: f64,
    /// How far the differences may be off, by their own estimate.
    pub error: f64,
    /// What follows.
    pub agreement: Agreement,
}

impl Direction {
    /// Analytic by numeric: 1 where the gradient is right.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        self.analytic.map(|analytic| analytic / self.numeric)
    }
}

/// What was found about the gradient of one variable.
#[derive(Debug, Clone, PartialEq)]
pub struct VariableCheck {
    /// The variable.
    pub name: String,
    /// One entry for each direction.
    pub directions: Vec<Direction>,
}

impl VariableCheck {
    /// The worst of the directions.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        self.directions.iter().map(|direction| direction.agreement).max().unwrap_or(Agreement::Undecided)
    }

    /// The factor by which the gradient is wrong (or 1) where it is the same in all directions, to a thousandth: 2 for a factor
    /// of two, −1 for a flipped sign.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        let factors: Option<Vec<f64>> = self.directions.iter().map(Direction::factor).collect();
        let factors = factors?;
        let first = *factors.first()?;
        let same = |factor: &f64| (factor - first).abs() <= 1e-3 * first.abs();
        (first.is_finite() && factors.iter().all(same)).then_some(first)
    }
}

impl fmt::Display for VariableCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.agreement() {
            Agreement::Agrees => "right",
            Agreement::Undecided => "undecided: the loss is not smooth enough here",
            Agreement::Missing => "no gradient",
            Agreement::Differs => "wrong",
        };
        write!(f, "{}: {verdict}", self.name)?;
        if let (Agreement::Differs, Some(factor)) = (self.agreement(), self.factor()) {
            write!(f, ", {factor:.4} times what it should be")?;
        }
        for direction in &self.directions {
            let analytic = direction.analytic.map_or_else(|| "none".to_owned(), |slope| format!("{slope:.9e}"));
            write!(f, "; slope {analytic}, by differences {:.9e} ± {:.1e}", direction.numeric, direction.error)?;
        }
        Ok(())
    }
}

/// What [`check_gradients`] found, variable by variable in the order of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientReport {
    /// The variables.
    pub variables: Vec<VariableCheck>,
}

impl GradientReport {
    /// The variables whose gradients are not right.
    pub fn faults(&self) -> impl Iterator<Item = &VariableCheck> {
        self.variables.iter().filter(|check| check.agreement() != Agreement::Agrees)
    }

    /// What was found about one variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&VariableCheck> {
        self.variables.iter().find(|check| check.name == name)
    }
}

impl fmt::Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, total) = (self.faults().count(), self.variables.len());
        write!(f, "{faults} of {total} variables have gradients that aren't known to be right")?;
        self.faults().try_for_each(|check| write!(f, "\n  {check}"))
    }
}

/// Compares the gradients of a loss with finite differences along random directions.
///
/// `f` computes the loss, one f64 number, from the variables as they are. Every variable that is looked at must be f64, too. The
/// slopes are extrapolated to a step of zero and come with an estimate of their error ([Ridders' method]); the verdict rests
/// on that estimate. `f` runs some dozen times for each direction of each variable: meant for small models. All variables have
/// their values again afterwards, bit by bit, also after errors.
///
/// A walk of the graph finds gradients that are missing; this finds those that are wrong.
///
/// [Ridders' method]: https://doi.org/10.1016/S0141-1195(82)80057-0
///
/// ```
/// use candle_audit::{Options, check_gradients};
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap};
///
/// # fn main() -> candle_audit::Result<()> {
/// let varmap = VarMap::new();
/// let vb = VarBuilder::from_varmap(&varmap, DType::F64, &Device::Cpu);
/// let layer = candle_nn::linear(3, 2, vb)?;
/// let x = Tensor::arange(0.0, 6.0, &Device::Cpu)?.reshape((2, 3))?; // (batch, features)
///
/// let loss = || layer.forward(&x)?.tanh()?.sqr()?.mean_all();
/// let report = check_gradients(loss, &varmap, &Options { relative: 1e-9, ..Options::default() })?;
/// assert_eq!(report.variables.len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Gradients`] where a gradient is wrong, missing or can't be judged; [`Error::DType`] and [`Error::Shape`] where a
/// variable or the loss isn't f64, or the loss isn't one number; [`Error::NotDeterministic`]; [`Error::Backward`];
/// [`Error::NoSuchVariable`]; and the errors of `f`.
pub fn check_gradients(
    mut f: impl FnMut() -> candle_core::Result<Tensor>,
    variables: impl Into<Variables>,
    options: &Options,
) -> Result<GradientReport> {
    let variables = variables.into();
    let everything = ["*".to_owned()];
    let patterns = options.only.as_deref().unwrap_or(&everything);
    let chosen = if variables.is_empty() { variables.matching::<&str>(&[])? } else { variables.matching(patterns)? };
    let chosen: Vec<_> = variables.trainable().filter(|(name, _)| chosen.contains(name)).collect();
    for (name, var) in &chosen {
        require_f64(name, var)?;
    }
    let loss = f()?;
    let first = scalar("the loss", &loss)?;
    let difference = scalar("the loss", &f()?)? - first;
    if difference != 0.0 {
        return Err(Error::NotDeterministic { difference: difference.abs() });
    }
    let gradients = backward(&loss).map_err(Error::Backward)?;
    let mut report = GradientReport { variables: Vec::new() };
    for (name, var) in chosen {
        let gradient = gradients.get(var).map(|gradient| flat(name, gradient, var)).transpose()?;
        let directions = check_variable(&mut f, name, var, gradient.as_deref(), options)?;
        report.variables.push(VariableCheck { name: name.to_owned(), directions });
    }
    if report.faults().next().is_some() { Err(Error::Gradients(report)) } else { Ok(report) }
}

fn flat(name: &str, gradient: &Tensor, var: &Var) -> Result<Vec<f64>> {
    if gradient.dims() != var.dims() {
        let expected = format!("shape {}", crate::variables::shape(var.dims()));
        return Err(Error::Shape { what: format!("the gradient of {name}"), expected, got: gradient.dims().to_vec() });
    }
    numbers(gradient)
}

fn check_variable(
    f: &mut impl FnMut() -> candle_core::Result<Tensor>,
    name: &str,
    var: &Var,
    gradient: Option<&[f64]>,
    options: &Options,
) -> Result<Vec<Direction>> {
    let base = numbers(var)?;
    let size = scale(&base);
    let saved = Saved::of([var])?;
    let mut directions = Vec::new();
    for number in 0..options.directions {
        let direction = noise(options.seed, &format!("{name} {number}"), -size, size, base.len());
        let slope = slope(0.125, |step| {
            let moved = base.iter().zip(&direction).map(|(x, d)| x + step * d).collect();
            var.set(&tensor_like(moved, var)?)?;
            scalar("the loss", &f()?)
        })?;
        let analytic = gradient.map(|gradient| gradient.iter().zip(&direction).map(|(g, d)| g * d).sum());
        let agreement = judge(analytic, slope.value, ERRORS * slope.error, slope.scale, options.relative);
        directions.push(Direction { analytic, numeric: slope.value, error: slope.error, agreement });
    }
    saved.restore()?;
    Ok(directions)
}

fn judge(analytic: Option<f64>, numeric: f64, uncertain: f64, loss: f64, relative: f64) -> Agreement {
    let Some(analytic) = analytic else { return Agreement::Missing };
    if !analytic.is_finite() {
        return Agreement::Differs;
    }
    let largest = analytic.abs().max(numeric.abs());
    if !uncertain.is_finite() {
        Agreement::Undecided
    } else if (analytic - numeric).abs() > uncertain + relative * largest {
        Agreement::Differs
    } else if uncertain > VAGUE * largest && uncertain > NEGLIGIBLE * loss {
        Agreement::Undecided
    } else {
        Agreement::Agrees
    }
}
