//! Does an optimizer's step reach every variable?

use crate::error::Result;
use crate::finding::Finding;
use crate::report::Report;
use crate::values::{non_finite, numbers};
use crate::variables::Variables;

use super::same_bits;

/// Runs one step of an optimizer, and finds the variables that it left as they were, those of `frozen` that it
/// changed, and those that hold NaN or infinity afterwards.
///
/// `step` computes the loss, its gradients and the update, as the training loop does. The step stays done.
///
/// ```
/// use candle_audit::{Error, Finding, probes};
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap};
///
/// # fn main() -> candle_audit::Result<()> {
/// let varmap = VarMap::new();
/// let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
/// let mut too_early = SGD::new(varmap.all_vars(), 0.1)?;
/// let layer = candle_nn::linear_no_bias(3, 2, vb)?;
/// let x = Tensor::ones((1, 3), DType::F32, &Device::Cpu)?; // (batch, features)
///
/// let loss = || layer.forward(&x)?.sqr()?.mean_all();
/// let Err(Error::Faults(report)) = probes::step(|| too_early.backward_step(&loss()?), &varmap, &[]) else {
///     panic!("the optimizer without variables was not found")
/// };
/// assert_eq!(report.findings(), [Finding::NotMoved { name: "weight".to_owned() }]);
///
/// let mut optimizer = SGD::new(varmap.all_vars(), 0.1)?;
/// probes::step(|| optimizer.backward_step(&loss()?), &varmap, &[])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Faults`] naming the variables; [`crate::Error::NoSuchVariable`]; the error of `step`.
pub fn step(
    step: impl FnOnce() -> candle_core::Result<()>,
    variables: impl Into<Variables>,
    frozen: &[&str],
) -> Result<Report> {
    let variables = variables.into();
    let frozen = variables.matching(frozen)?;
    let before: Vec<_> = variables.trainable().map(|(_, var)| numbers(var)).collect::<Result<_>>()?;
    step()?;
    let mut findings = Vec::new();
    for ((name, var), before) in variables.trainable().zip(before) {
        let name = name.to_owned();
        let after = numbers(var)?;
        let (same, count, total) = (same_bits(&before, &after), non_finite(&after), after.len());
        if frozen.contains(name.as_str()) {
            findings.extend((!same).then_some(Finding::FrozenMoved { name }));
        } else if count > 0 {
            findings.push(Finding::NonFiniteValue { name, count, total });
        } else if same && total > 0 {
            findings.push(Finding::NotMoved { name });
        }
    }
    Report::new(findings, variables.len()).into_result()
}
