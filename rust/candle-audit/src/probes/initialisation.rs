//! Which variables were made without initial values?

use crate::error::Result;
use crate::finding::Finding;
use crate::report::Report;
use crate::values::{non_finite, numbers};
use crate::variables::Variables;

/// Finds variables that hold only zeros, except those that `allowed` names, and variables that hold NaN or infinity.
///
/// On a `VarMap`, `VarBuilder::get` makes zeros where there is no value yet; so does a checkpoint's name that is spelt otherwise.
///
/// ```
/// use candle_audit::{Error, Finding, probes};
/// use candle_core::{DType, Device};
/// use candle_nn::{VarBuilder, VarMap};
///
/// # fn main() -> candle_audit::Result<()> {
/// let varmap = VarMap::new();
/// let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
/// candle_nn::linear(3, 4, vb.pp("head"))?;
/// vb.get((4, 4), "mixing")?;
/// let Err(Error::Faults(report)) = probes::initialisation(&varmap, &[]) else { panic!("the zeros were not found") };
/// assert_eq!(report.findings(), [Finding::OnlyZeros { name: "mixing".to_owned() }]);
/// probes::initialisation(&varmap, &["mixing"])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Faults`] naming the variables; [`crate::Error::NoSuchVariable`].
pub fn initialisation(variables: impl Into<Variables>, allowed: &[&str]) -> Result<Report> {
    let variables = variables.into();
    let allowed = variables.matching(allowed)?;
    let mut findings = Vec::new();
    for (name, var) in variables.trainable() {
        let values = numbers(var)?;
        let (count, total) = (non_finite(&values), values.len());
        if count > 0 {
            findings.push(Finding::NonFiniteValue { name: name.to_owned(), count, total });
        } else if total > 0 && !allowed.contains(name) && values.iter().all(|&x| x == 0.0) {
            findings.push(Finding::OnlyZeros { name: name.to_owned() });
        }
    }
    Report::new(findings, variables.len()).into_result()
}
