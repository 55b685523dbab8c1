//! An optimizer: named variables, a rule that updates one of them, and the rule's moments.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use indexmap::IndexMap;

use super::group::{Group, Update, numbered};
use crate::error::{Error, Result};
use crate::gradients::Gradients;
use crate::params::Parameters;

/// How one parameter is updated; the rule's fields are its hyperparameters.
pub trait Rule: Clone + Send + Sync {
    /// Refuses hyperparameters out of range.
    fn check(&self) -> Result<()>;

    /// Learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Glob patterns of the names that get no weight decay.
    fn no_decay(&self) -> &[String];

    /// Glob patterns of the names that are not trained.
    fn freeze(&self) -> &[String];

    /// Names of the moments that each parameter has, as torch calls them.
    fn moments(&self) -> &'static [&'static str];

    /// The hyperparameters by name, for a state.
    fn scalars(&self) -> Vec<(&'static str, f64)>;

    /// The rule with one hyperparameter of a state; `name` is among [`Rule::scalars`].
    fn set_scalar(&mut self, name: &str, value: f64);

    /// The parameter's new value; updates its moments. `step` counts from 1.
    fn update(&self, step: u64, value: &Tensor, grad: &Tensor, decays: bool, moments: &mut [Tensor]) -> Result<Tensor>;
}

/// Numbers and tensors from which an optimizer goes on exactly where it was.
#[derive(Debug, Clone, Default)]
pub struct OptimizerState {
    /// Steps taken so far.
    pub step: u64,
    /// Hyperparameters by name.
    pub scalars: IndexMap<String, f64>,
    /// Moments, as `<moment>.<parameter>`.
    pub tensors: IndexMap<String, Tensor>,
}

/// Named variables under a rule. Scalars are f64, moments have their parameter's element type.
#[derive(Debug, Clone)]
pub struct Optimizer<R> {
    group: Group,
    rule: R,
    step: u64,
    moments: IndexMap<String, Vec<Tensor>>,
}

impl<R: Rule> Optimizer<R> {
    /// An optimizer of named variables.
    pub fn from_named(vars: impl IntoIterator<Item = (String, Var)>, rule: R) -> Result<Self> {
        rule.check()?;
        let group = Group::new(vars, rule.no_decay(), rule.freeze())?;
        let zeros = |(name, var): (&str, &Var)| {
            let zero = var.as_detached_tensor().zeros_like()?;
            Ok((name.to_owned(), vec![zero; rule.moments().len()]))
        };
        let moments = group.trained().map(zeros).collect::<Result<_>>()?;
        Ok(Self { group, rule, step: 0, moments })
    }

    /// An optimizer of all variables that are in `varmap` now.
    pub fn from_varmap(varmap: &VarMap, rule: R) -> Result<Self> {
        let all = Parameters::all(varmap.clone());
        Self::from_named(all.iter().map(|(name, var)| (name.to_owned(), var.clone())), rule)
    }

    /// The rule and its hyperparameters.
    #[must_use]
    pub fn config(&self) -> &R {
        &self.rule
    }

    fn update(&mut self, updates: &[Update<'_>]) -> Result<()> {
        self.step += 1;
        for Update { name, var, grad, decays } in updates {
            let moments = self.moments.get_mut(*name).map_or(&mut [][..], Vec::as_mut_slice);
            let value = self.rule.update(self.step, &var.as_detached_tensor(), &grad.detach(), *decays, moments)?;
            var.set(&value)?;
        }
        Ok(())
    }

    /// The moments in `state`, checked against the trained variables.
    fn moments_of(&self, rule: &R, state: &OptimizerState) -> Result<IndexMap<String, Vec<Tensor>>> {
        let moment = |moment: &str, name: &str, var: &Var| {
            let key = format!("{moment}.{name}");
            let Some(tensor) = state.tensors.get(&key) else {
                return Err(Error::StateDict(format!("{key} is missing")));
            };
            crate::state::check_dtype(&key, tensor, var.dtype())?;
            if tensor.dims() != var.dims() {
                return Err(Error::shape(key, crate::error::shape(var.dims()), tensor.dims()));
            }
            Ok(tensor.to_device(var.device())?)
        };
        let all = |(name, var): (&str, &Var)| {
            let moments = rule.moments().iter().map(|kind| moment(kind, name, var)).collect::<Result<_>>()?;
            Ok((name.to_owned(), moments))
        };
        self.group.trained().map(all).collect()
    }

    /// Refuses a state with entries that a state of `rule` doesn't have: it is another optimizer's, or another model's.
    fn check_entries(&self, rule: &R, state: &OptimizerState) -> Result<()> {
        let trained = |name: &str| self.group.trained().any(|(known, _)| known == name);
        let moment = |key: &str| {
            let mut names = rule.moments().iter().filter_map(|moment| key.strip_prefix(moment)?.strip_prefix('.'));
            names.any(trained)
        };
        let scalar = |key: &str| rule.scalars().iter().any(|(name, _)| *name == key);
        let scalars = state.scalars.keys().filter(|key| !scalar(key));
        let others: Vec<_> = scalars.chain(state.tensors.keys().filter(|key| !moment(key))).cloned().collect();
        if others.is_empty() { Ok(()) } else { Err(Error::StateDict(format!("unexpected: {}", others.join(", ")))) }
    }
}

/// What every optimizer does, whatever its rule.
pub trait AnyOptimizer: Send + Sync {
    /// One step with gradients by name.
    ///
    /// # Errors
    /// [`Error::MissingGradient`] where a trained parameter has none; nothing is written then.
    fn step_named(&mut self, grads: &Gradients) -> Result<()>;

    /// Learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the steps to come.
    fn set_lr(&mut self, lr: f64) -> Result<()>;

    /// All that a bit-exact continuation needs besides the parameters.
    fn state(&self) -> OptimizerState;

    /// Goes on from `state`, all of it or none.
    fn load_state(&mut self, state: &OptimizerState) -> Result<()>;
}

impl<R: Rule> AnyOptimizer for Optimizer<R> {
    fn step_named(&mut self, grads: &Gradients) -> Result<()> {
        let group = self.group.clone();
        self.update(&group.pair_named(grads)?)
    }

    fn lr(&self) -> f64 {
        self.rule.lr()
    }

    fn set_lr(&mut self, lr: f64) -> Result<()> {
        let mut rule = self.rule.clone();
        rule.set_lr(lr);
        rule.check()?;
        self.rule = rule;
        Ok(())
    }

    fn state(&self) -> OptimizerState {
        let mut tensors = IndexMap::new();
        for (at, moment) in self.rule.moments().iter().enumerate() {
            let of = |(name, moments): (&String, &Vec<Tensor>)| (format!("{moment}.{name}"), moments[at].clone());
            tensors.extend(self.moments.iter().map(of));
        }
        let scalars = self.rule.scalars().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        OptimizerState { step: self.step, scalars, tensors }
    }

    fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        let mut rule = self.rule.clone();
        for (name, _) in self.rule.scalars() {
            let Some(value) = state.scalars.get(name) else {
                return Err(Error::StateDict(format!("{name} is missing")));
            };
            rule.set_scalar(name, *value);
        }
        rule.check()?;
        self.check_entries(&rule, state)?;
        let moments = self.moments_of(&rule, state)?;
        (self.rule, self.step, self.moments) = (rule, state.step, moments);
        Ok(())
    }
}

/// Candle's own interface. `new` gets no names: every variable decays and none can be frozen; see
/// [`Optimizer::from_varmap`].
impl<R: Rule> candle_nn::Optimizer for Optimizer<R> {
    type Config = R;

    fn new(vars: Vec<Var>, rule: R) -> candle_core::Result<Self> {
        Ok(Self::from_named(numbered(vars), rule)?)
    }

    fn step(&mut self, grads: &GradStore) -> candle_core::Result<()> {
        let group = self.group.clone();
        Ok(self.update(&group.pair_store(grads)?)?)
    }

    fn learning_rate(&self) -> f64 {
        self.rule.lr()
    }

    fn set_learning_rate(&mut self, lr: f64) {
        self.rule.set_lr(lr);
    }
}
