//! Does the model look at its variables each time it runs?

use candle_core::Tensor;

use super::{deterministic, same_bits};
use crate::error::Result;
use crate::finding::Finding;
use crate::report::Report;
use crate::values::{Saved, noise, numbers, scale, tensor_like};
use crate::variables::Variables;

/// Sets each variable to other values in turn, runs the model, and finds those that change nothing: what the model computes with
/// was made from them earlier (−exp(A_log), a transposed copy, a cast) and stays as it is while they train.
///
/// `f` computes the output, of any shape. Variables without influence can be `allowed`: those behind a clamp that is
/// always active, or a bias in front of a normalisation.
///
/// ```
/// use candle_audit::{Error, Finding, probes};
/// use candle_core::{Device, Tensor, Var};
///
/// # fn main() -> candle_audit::Result<()> {
/// let a_log = Var::new(&[0.5, 1.0], &Device::Cpu)?;
/// let a = a_log.exp()?.neg()?; // in a constructor
/// let x = Tensor::new(&[1.0, 2.0], &Device::Cpu)?;
/// let stale = probes::staleness(|| x.mul(&a), [("a_log", a_log.clone())], &[]);
/// let Err(Error::Faults(report)) = stale else { panic!("the stale value was not found") };
/// assert_eq!(report.findings(), [Finding::Stale { name: "a_log".to_owned() }]);
/// probes::staleness(|| x.mul(&a_log.exp()?.neg()?), [("a_log", a_log.clone())], &[])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Faults`] naming the variables; [`crate::Error::NotDeterministic`]; [`crate::Error::NoSuchVariable`]; the
/// errors of `f`.
pub fn staleness(
    mut f: impl FnMut() -> candle_core::Result<Tensor>,
    variables: impl Into<Variables>,
    allowed: &[&str],
) -> Result<Report> {
    let variables = variables.into();
    let allowed = variables.matching(allowed)?;
    let before = deterministic(&mut f)?;
    let mut findings = Vec::new();
    for (name, var) in variables.trainable().filter(|(name, var)| !allowed.contains(name) && var.elem_count() > 0) {
        let saved = Saved::of([var])?;
        let values = numbers(var)?;
        let size = scale(&values);
        // Each element moves by another amount: a common shift or factor is what norms and softmax undo.
        let shifts = noise(0, name, 0.125 * size, 0.375 * size, values.len());
        let moved = values.iter().zip(shifts).map(|(x, shift)| x + shift).collect();
        var.set(&tensor_like(moved, var)?)?;
        let after = numbers(&f()?)?;
        saved.restore()?;
        if same_bits(&before, &after) {
            findings.push(Finding::Stale { name: name.to_owned() });
        }
    }
    Report::new(findings, variables.len()).into_result()
}
