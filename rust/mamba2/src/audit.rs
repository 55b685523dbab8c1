//! Checks for faults that raise no error: a model trains, and learns nothing or the wrong thing.
//!
//! Beside these, [`crate::Parameters::new`] holds a `VarMap` against the names a model must have (a parameter that is a plain
//! tensor is in no map and in no graph), and [`crate::gradients::collect`] names the variables that no gradient reached.

use candle_core::{DType, Tensor, Var};
use candle_nn::VarMap;

use crate::error::{Error, Result};
use crate::gradients::norm;
use crate::params::lock;
use crate::state::check_dtype;

/// Every node that leads to `objective` has element type `dtype`: no value is squeezed through another one. The error is
/// about the first node, in the order of the forward pass, that has not.
pub fn graph_dtype(objective: &Tensor, dtype: DType) -> Result<()> {
    for node in objective.sorted_nodes().into_iter().rev() {
        let what = format!("a node of the graph, of shape {},", crate::error::shape(node.dims()));
        check_dtype(&what, node, dtype)?;
    }
    Ok(())
}

/// Setting any one variable changes what `output` gives: nothing made from it was kept from a constructor.
///
/// Each variable is set to other values in turn and restored.
pub fn fresh(vars: &[(String, Var)], output: impl Fn() -> Result<Tensor>) -> Result<()> {
    let before = output()?.detach();
    let mut names = Vec::new();
    for (name, var) in vars {
        let saved = var.as_detached_tensor().copy()?;
        var.set(&saved.affine(0.75, 0.125)?)?;
        let after = output();
        var.set(&saved)?;
        if norm(&after?.detach().sub(&before)?)? == 0.0 {
            names.push(name.clone());
        }
    }
    let fault = |names: &str| format!("change nothing when they are set: {names}. A value made from them was kept.");
    verdict(names, vars.len(), fault)
}

/// No variable holds only zeros, except those named in `allowed`.
///
/// Candle's `VarBuilder::get` makes zeros where the map lacks a name; so does a name that is spelt wrong.
pub fn initialised(varmap: &VarMap, allowed: &[&str]) -> Result<()> {
    let mut names = Vec::new();
    let data = lock(varmap);
    for (name, var) in data.iter().filter(|(name, _)| !allowed.contains(&name.as_str())) {
        if norm(&var.as_detached_tensor())? == 0.0 {
            names.push(name.clone());
        }
    }
    names.sort();
    verdict(names, data.len(), |names| format!("hold only zeros: {names}. They were made without initial values."))
}

fn verdict(names: Vec<String>, total: usize, fault: impl Fn(&str) -> String) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::Audit { fault: fault(&names.join(", ")), names, total })
}
