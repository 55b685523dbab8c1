//! Gradients by name, in the model's order, with none missing.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, Var};
use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::state::State;

/// What a backward pass gives.
#[derive(Debug, Clone)]
pub struct Gradients {
    parameters: IndexMap<String, Tensor>,
    /// To the input.
    pub input: Tensor,
    /// To the initial states, where some were given.
    pub states: Option<Vec<State>>,
}

impl Gradients {
    /// Gradients of named parameters, of the input and of the initial states.
    #[must_use]
    pub fn new(parameters: IndexMap<String, Tensor>, input: Tensor, states: Option<Vec<State>>) -> Self {
        Self { parameters, input, states }
    }

    /// Names and gradients in the model's order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.parameters.iter().map(|(name, grad)| (name.as_str(), grad))
    }

    /// The gradient of one parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.parameters.get(name)
    }

    /// Adds another backward's gradients of the same parameters. Input and states keep their own.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        for (name, grad) in &self.parameters {
            let Some(more) = other.get(name) else {
                let total = self.parameters.len();
                return Err(Error::MissingGradient { names: vec![name.clone()], total });
            };
            crate::state::check_dtype(name, more, grad.dtype())?;
            if more.dims() != grad.dims() {
                return Err(Error::shape(name, crate::error::shape(grad.dims()), more.dims()));
            }
        }
        if other.parameters.len() != self.parameters.len() {
            let extra = other.parameters.keys().filter(|name| !self.parameters.contains_key(*name));
            return Err(Error::OtherGradients(extra.cloned().collect()));
        }
        let sums: Result<Vec<_>> =
            self.parameters.iter().map(|(name, grad)| Ok(grad.add(&other.parameters[name])?)).collect();
        self.replace(sums?);
        Ok(())
    }

    /// Multiplies the gradients of all parameters. Input and states keep their own.
    pub fn scale(&mut self, factor: f64) -> Result<()> {
        let scaled: Result<Vec<_>> = self.parameters.values().map(|grad| Ok(grad.affine(factor, 0.0)?)).collect();
        self.replace(scaled?);
        Ok(())
    }

    fn replace(&mut self, values: Vec<Tensor>) {
        for (slot, value) in self.parameters.values_mut().zip(values) {
            *slot = value;
        }
    }

    /// Euclidean norm of each parameter's gradient, summed in f64.
    pub fn norms(&self) -> Result<IndexMap<String, f64>> {
        self.parameters.iter().map(|(name, grad)| Ok((name.clone(), norm(grad)?))).collect()
    }
}

/// Euclidean norm of a tensor, summed in f64.
pub fn norm(tensor: &Tensor) -> Result<f64> {
    if tensor.elem_count() == 0 {
        return Ok(0.0);
    }
    Ok(tensor.to_dtype(DType::F64)?.sqr()?.sum_all()?.sqrt()?.to_scalar()?)
}

/// The gradient of every variable, detached from the graph that made it.
///
/// # Errors
/// [`Error::MissingGradient`] names the variables that the backward pass did not reach: Candle leaves them out in silence.
pub fn collect<'a>(
    vars: impl IntoIterator<Item = (&'a str, &'a Var)>,
    grads: &GradStore,
) -> Result<IndexMap<String, Tensor>> {
    let found: Vec<_> = vars.into_iter().map(|(name, var)| (name, grads.get(var))).collect();
    let total = found.len();
    let missing = found.iter().filter(|(_, grad)| grad.is_none());
    let names: Vec<_> = missing.map(|(name, _)| (*name).to_owned()).collect();
    if !names.is_empty() {
        return Err(Error::MissingGradient { names, total });
    }
    let found = found.into_iter().filter_map(|(name, grad)| Some((name.to_owned(), grad?.detach())));
    let gradients = found.collect();
    crate::trace::gradients(&gradients)?;
    Ok(gradients)
}
