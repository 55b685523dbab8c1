//! Faults that raise no error, looked for in a model by `candle-audit`; and the table of what Candle's operations are worth.

use candle_audit::{Error as AuditError, Finding, Options, Report, VariableCheck, Variables, check_gradients, probes};
use mamba2::optim::{AdamW, AdamWConfig, AnyOptimizer};
use mamba2::{Error, Result};
use pyo3::prelude::*;

use crate::arrays::to_tensor;
use crate::model::Model;
use crate::runtime::{compute, write};

/// A fault: the variable's name where it has one, what is wrong, and where or how much.
type Fault = (Option<String>, String, String);

/// What one check found: its name, how many variables it looked at, and the faults.
type Check = (String, usize, Vec<Fault>);

/// Runs every check on a float64 model, with the mean squared error of `x` and `target` as loss. The optimizer's step changes the
/// model: it is meant for a copy.
#[pyfunction]
#[pyo3(signature = (model, x, target, *, name, directions, seed, allowing_zero))]
pub fn audit(
    model: &Model,
    x: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    name: &str,
    directions: usize,
    seed: u64,
    allowing_zero: Vec<String>,
) -> PyResult<Vec<Check>> {
    let py = x.py();
    let (x, target) = (to_tensor(name, x, model.dtype)?, to_tensor("target", target, model.dtype)?);
    let model = write(py, &model.inner)?;
    compute(py, move || {
        let loss = || model.objective(&x, &target).map_err(candle_core::Error::wrap);
        let named = || model.parameters().iter().map(|(name, var)| (name.to_owned(), var.clone()));
        let vars: Variables = named().collect();
        let allowed: Vec<_> = allowing_zero.iter().map(String::as_str).collect();
        let graph = candle_audit::audit(&loss()?, &vars).allowing_zero(allowed.clone()).check();
        let options = Options { directions, seed, relative: RELATIVE, only: None };
        let mut checks = vec![
            check("graph", graph)?,
            check("initial values", probes::initialisation(&vars, &allowed))?,
            check("staleness", probes::staleness(loss, &vars, &allowed))?,
            check("precision", probes::precision(loss, &vars, &allowed))?,
            check_of_gradients(check_gradients(loss, &vars, &options))?,
        ];
        let mut optimizer = AdamW::from_named(named(), AdamWConfig::default())?;
        let step = || {
            let mut trained = || {
                let output = model.forward(&x, None)?;
                let loss = output.mse_loss(&target)?;
                optimizer.step_named(&output.backward_from(&model, &loss)?)
            };
            trained().map_err(candle_core::Error::wrap)
        };
        let mut stepped = check("optimizer step", probes::step(step, &vars, &[]))?;
        // Without weight decay a gradient of zero moves nothing.
        let may_stay = vars.matching(&allowed).map_err(other)?;
        stepped.2.retain(|(name, ..)| !name.as_deref().is_some_and(|name| may_stay.contains(name)));
        checks.push(stepped);
        Ok(checks)
    })
}

/// What gradients of Mamba-2 in f64 may be off by, beside what the differences' own estimate explains.
const RELATIVE: f64 = 1e-8;

fn check(name: &str, found: candle_audit::Result<Report>) -> Result<Check> {
    let report = match found {
        Ok(report) | Err(AuditError::Faults(report)) => report,
        Err(error) => return Err(other(error)),
    };
    let fault = |finding: &Finding| (finding.name().map(str::to_owned), finding.fault().to_owned(), finding.place());
    // What a parameter hardly changes in this batch tells nothing of its precision, and is no fault.
    let (untold, faults): (Vec<_>, Vec<_>) =
        report.findings().iter().partition(|finding| matches!(finding, Finding::Insensitive { .. }));
    Ok((name.to_owned(), report.looked_at() - untold.len(), faults.into_iter().map(fault).collect()))
}

fn check_of_gradients(found: candle_audit::Result<candle_audit::GradientReport>) -> Result<Check> {
    let report = match found {
        Ok(report) | Err(AuditError::Gradients(report)) => report,
        Err(error) => return Err(other(error)),
    };
    let fault = |check: &VariableCheck| {
        (Some(check.name.clone()), "gradient against finite differences".to_owned(), check.to_string())
    };
    Ok(("gradients".to_owned(), report.variables.len(), report.faults().map(fault).collect()))
}

fn other(error: AuditError) -> Error {
    match error {
        AuditError::NoSuchVariable { .. } => Error::StateDict(error.to_string()),
        AuditError::NotDeterministic { .. } | AuditError::Backward(_) => Error::Graph(error.to_string()),
        other => candle_core::Error::from(other).into(),
    }
}

/// Measures Candle's own operations, as Markdown.
#[pyfunction]
pub fn candle_operations(py: Python<'_>) -> PyResult<String> {
    compute(py, || Ok(candle_audit::operations::markdown()))
}
