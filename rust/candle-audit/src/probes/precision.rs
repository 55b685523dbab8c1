//! Is a model that says f64 computed in f64?

use candle_core::{Tensor, Var};

use super::deterministic;
use crate::error::Result;
use crate::finding::Finding;
use crate::graph::backward;
use crate::report::Report;
use crate::values::{Saved, noise, numbers, require_f64, scalar, tensor_like};
use crate::variables::Variables;

/// The relative change that measures the slope: large enough to show through f32, small enough to be linear.
const COARSE: f64 = 1.0 / 65_536.0;

/// The relative changes that must show. All are below what f32 can hold (6e-8); the larger ones are for slopes so small that
/// f64's own rounding would hide the first.
const FINE: [f64; 3] = [1e-12, 1e-11, 1e-10];

/// What rounding in f64 may do to the loss, relative to it.
const ROUNDING: f64 = 32.0 * f64::EPSILON;

/// How far above rounding a change has to be, and the relative error that it may have.
const SIGNAL: f64 = 20.0;
const TOLERANCE: f64 = 1.0 / SIGNAL;

/// Changes each variable by 1e-12 of itself and finds those whose change doesn't show in the loss as it should:
/// something on the way is rounded to a shorter type. A walk of the graph finds casts, too, but not those inside an operation.
///
/// `f` computes the loss, one f64 number, and every variable must be f64. For inputs, pass them as named variables. Variables
/// that are `allowed` aren't looked at; others must have enough influence to judge, or are reported as insensitive.
/// Meant for small models: where rounding errors of a million elements average out, it sees less.
///
/// ```
/// use candle_audit::{Error, Finding, probes};
/// use candle_core::{DType, Device, Var};
///
/// # fn main() -> candle_audit::Result<()> {
/// let w = Var::new(&[0.3, 0.7], &Device::Cpu)?;
/// probes::precision(|| w.exp()?.sum_all(), [("w", w.clone())], &[])?;
/// let rounded = || w.to_dtype(DType::F32)?.exp()?.sum_all()?.to_dtype(DType::F64);
/// let Err(Error::Faults(report)) = probes::precision(rounded, [("w", w.clone())], &[]) else { panic!("not found") };
/// assert!(matches!(&report.findings()[0], Finding::LostPrecision { name, .. } if name == "w"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Faults`] naming the variables; [`crate::Error::DType`] and [`crate::Error::Shape`] where a variable or the
/// loss isn't f64, or the loss isn't one number; [`crate::Error::NotDeterministic`]; [`crate::Error::NoSuchVariable`]; the
/// errors of `f`.
pub fn precision(
    mut f: impl FnMut() -> candle_core::Result<Tensor>,
    variables: impl Into<Variables>,
    allowed: &[&str],
) -> Result<Report> {
    let variables = variables.into();
    let allowed = variables.matching(allowed)?;
    let chosen: Vec<_> = variables.trainable().filter(|(name, _)| !allowed.contains(name)).collect();
    for (name, var) in &chosen {
        require_f64(name, var)?;
    }
    let loss = f()?;
    scalar("the loss", &loss)?;
    deterministic(&mut f)?;
    // Only the signs are used, so a model with wrong or missing gradients can be looked at as well.
    let gradients = backward(&loss).unwrap_or_default();
    let mut findings = Vec::new();
    for (name, var) in chosen {
        let values = numbers(var)?;
        let signs = match gradients.get(var).map(numbers).transpose()? {
            Some(gradient) if gradient.len() == values.len() => gradient,
            _ => noise(0, name, -1.0, 1.0, values.len()),
        };
        let direction: Vec<_> = values.iter().zip(signs).map(|(x, sign)| aligned(*x, sign)).collect();
        let saved = Saved::of([var])?;
        let judged = judge(&mut f, name, var, &values, &direction)?;
        saved.restore()?;
        findings.extend(judged);
    }
    Report::new(findings, variables.len()).into_result()
}

/// The size of an element, with the sign that lets all elements change the loss the same way.
fn aligned(value: f64, sign: f64) -> f64 {
    let size = if value == 0.0 { 1.0 } else { value.abs() };
    if sign < 0.0 { -size } else { size }
}

fn judge(
    f: &mut impl FnMut() -> candle_core::Result<Tensor>,
    name: &str,
    var: &Var,
    values: &[f64],
    direction: &[f64],
) -> Result<Option<Finding>> {
    let mut half_difference = |step: f64| -> Result<(f64, f64)> {
        let mut at = |step: f64| -> Result<f64> {
            let moved = values.iter().zip(direction).map(|(x, d)| x + step * d).collect();
            var.set(&tensor_like(moved, var)?)?;
            scalar("the loss", &f()?)
        };
        let (above, below) = (at(step)?, at(-step)?);
        Ok(((above - below) / 2.0, above.abs().max(below.abs())))
    };
    let (coarse, size) = half_difference(COARSE)?;
    let name = name.to_owned();
    let Some(step) = FINE.into_iter().find(|fine| (coarse / COARSE * fine).abs() >= SIGNAL * ROUNDING * size) else {
        return Ok(Some(Finding::Insensitive { name }));
    };
    let expected = coarse / COARSE * step;
    let (got, _) = half_difference(step)?;
    let shows = (got - expected).abs() <= 2.0 * TOLERANCE * expected.abs();
    Ok((!shows).then_some(Finding::LostPrecision { name, expected, got }))
}
