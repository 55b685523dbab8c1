//! The parameters an optimizer works on: which decay, which are frozen, and their gradients.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use glob::Pattern;
use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::gradients::Gradients;

/// Names that get no weight decay by default: the state space model's own parameters, norms and biases.
pub const DEFAULT_NO_DECAY: [&str; 9] =
    ["A_log", "*.A_log", "D", "*.D", "dt_bias", "*.dt_bias", "*norm.weight", "*norm_f.weight", "*.bias"];

/// Variables by name, each with its part in the optimization.
#[derive(Debug, Clone)]
pub struct Group {
    slots: IndexMap<String, Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    var: Var,
    decays: bool,
    frozen: bool,
}

/// One variable that is to be updated.
pub(super) struct Update<'a> {
    pub(super) name: &'a str,
    pub(super) var: &'a Var,
    pub(super) grad: &'a Tensor,
    pub(super) decays: bool,
}

impl Group {
    /// `vars` by name. Names that one of the glob patterns `no_decay` matches get no weight decay, names that one of
    /// `freeze` matches are left alone.
    ///
    /// # Errors
    /// [`Error::Config`] for a pattern of `freeze` that matches nothing, or that is no pattern.
    pub fn new(vars: impl IntoIterator<Item = (String, Var)>, no_decay: &[String], freeze: &[String]) -> Result<Self> {
        let no_decay = patterns("no_decay", no_decay)?;
        let frozen = patterns("freeze", freeze)?;
        let any = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let slot = |(name, var): (String, Var)| {
            let slot = Slot { var, decays: !any(&no_decay, &name), frozen: any(&frozen, &name) };
            (name, slot)
        };
        let slots: IndexMap<_, _> = vars.into_iter().map(slot).collect();
        for pattern in &frozen {
            if !slots.keys().any(|name| pattern.matches(name)) {
                return Err(Error::config("freeze", "patterns that match a parameter each", pattern.as_str()));
            }
        }
        Ok(Self { slots })
    }

    /// The variables that are not frozen.
    pub(super) fn trained(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.slots.iter().filter(|(_, slot)| !slot.frozen).map(|(name, slot)| (name.as_str(), &slot.var))
    }

    /// The variables to update with their gradients from a Candle backward.
    pub(super) fn pair_store<'a>(&'a self, grads: &'a GradStore) -> Result<Vec<Update<'a>>> {
        self.pair(|_, var| grads.get(var))
    }

    /// The variables to update with their gradients by name.
    pub(super) fn pair_named<'a>(&'a self, grads: &'a Gradients) -> Result<Vec<Update<'a>>> {
        let others = grads.iter().map(|(name, _)| name).filter(|name| !self.slots.contains_key(*name));
        let others: Vec<_> = others.collect();
        if !others.is_empty() {
            return Err(Error::OtherGradients(others.into_iter().map(String::from).collect()));
        }
        self.pair(|name, _| grads.get(name))
    }

    fn pair<'a>(&'a self, find: impl Fn(&'a str, &'a Var) -> Option<&'a Tensor>) -> Result<Vec<Update<'a>>> {
        let mut updates = Vec::with_capacity(self.slots.len());
        let mut names = Vec::new();
        for (name, Slot { var, decays, .. }) in self.slots.iter().filter(|(_, slot)| !slot.frozen) {
            let Some(grad) = find(name, var) else {
                names.push(name.clone());
                continue;
            };
            crate::state::check_dtype(name, grad, var.dtype())?;
            if grad.dims() != var.dims() {
                return Err(Error::shape(name, crate::error::shape(var.dims()), grad.dims()));
            }
            updates.push(Update { name, var, grad, decays: *decays });
        }
        if names.is_empty() { Ok(updates) } else { Err(Error::MissingGradient { names, total: self.slots.len() }) }
    }
}

/// Refuses a hyperparameter outside `range`.
pub(super) fn check(field: &str, value: f64, range: std::ops::Range<f64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let rule = if range.end.is_infinite() {
        format!("a finite number of at least {}", range.start)
    } else {
        format!("from {} to below {}", range.start, range.end)
    };
    Err(Error::config(field, rule, value))
}

/// Names for variables that came without: their positions.
pub(super) fn numbered(vars: Vec<Var>) -> impl Iterator<Item = (String, Var)> {
    vars.into_iter().enumerate().map(|(at, var)| (at.to_string(), var))
}

fn patterns(field: &str, patterns: &[String]) -> Result<Vec<Pattern>> {
    let parse =
        |text: &String| Pattern::new(text).map_err(|error| Error::config(field, format!("a pattern: {error}"), text));
    patterns.iter().map(parse).collect()
}
