//! The variables of a model, by name.

use std::collections::HashSet;
use std::sync::PoisonError;

use candle_core::{DType, TensorId, Var};
use candle_nn::VarMap;
use indexmap::IndexMap;

use crate::error::{Error, Result};

/// Variables and their names, in the order of the names.
///
/// Made from a [`VarMap`], or from pairs of name and variable where a model keeps its variables elsewhere, or where inputs
/// are to be looked at as well.
///
/// ```
/// use candle_audit::Variables;
/// use candle_core::{Device, Var};
///
/// # fn main() -> candle_core::Result<()> {
/// let input = Var::new(&[1.0, 2.0], &Device::Cpu)?;
/// let variables = Variables::from([("input", input)]);
/// assert_eq!(variables.names().collect::<Vec<_>>(), ["input"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Variables(IndexMap<String, Var>);

impl From<&VarMap> for Variables {
    fn from(varmap: &VarMap) -> Self {
        // A panic while the lock was held leaves the map itself whole.
        let data = varmap.data().lock().unwrap_or_else(PoisonError::into_inner);
        data.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
    }
}

impl From<&Self> for Variables {
    fn from(variables: &Self) -> Self {
        variables.clone()
    }
}

impl<S: Into<String>, const N: usize> From<[(S, Var); N]> for Variables {
    fn from(pairs: [(S, Var); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl<S: Into<String>> FromIterator<(S, Var)> for Variables {
    fn from_iter<I: IntoIterator<Item = (S, Var)>>(pairs: I) -> Self {
        let mut vars: IndexMap<String, Var> = pairs.into_iter().map(|(name, var)| (name.into(), var)).collect();
        vars.sort_unstable_keys();
        Self(vars)
    }
}

impl Variables {
    /// Names and variables.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Var)> {
        self.0.iter().map(|(name, var)| (name.as_str(), var))
    }

    /// The names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The variable of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Var> {
        self.0.get(name)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The variables that can be trained: those of a floating point type, as optimizers pick them.
    pub(crate) fn trainable(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.iter().filter(|(_, var)| var.dtype().is_float())
    }

    /// The name of the variable with this identity.
    pub(crate) fn name_of(&self, id: TensorId) -> Option<&str> {
        self.iter().find(|(_, var)| var.id() == id).map(|(name, _)| name)
    }

    /// The floating point type of most variables.
    pub(crate) fn dtype(&self) -> Option<DType> {
        let mut counts: IndexMap<DType, usize> = IndexMap::new();
        for (_, var) in self.trainable() {
            *counts.entry(var.dtype()).or_default() += 1;
        }
        counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype)
    }

    /// The names that fit one of the patterns.
    ///
    /// # Errors
    /// [`Error::NoSuchVariable`] for a pattern that fits none.
    pub fn matching<S: AsRef<str>>(&self, patterns: &[S]) -> Result<HashSet<&str>> {
        let mut found = HashSet::new();
        for pattern in patterns.iter().map(AsRef::as_ref) {
            let fitting: Vec<_> = self.names().filter(|name| fits(pattern, name)).collect();
            if fitting.is_empty() {
                let names = self.names().map(str::to_owned).collect();
                return Err(Error::NoSuchVariable { pattern: pattern.to_owned(), names });
            }
            found.extend(fitting);
        }
        Ok(found)
    }
}

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    name.strip_prefix(head)
        .is_some_and(|tail| tail.char_indices().any(|(at, _)| fits(rest, &tail[at..])) || fits(rest, ""))
}

/// A shape as it's written in Rust and Python: `()`, `(4,)`, `(2, 3)`.
pub(crate) fn shape(dims: &[usize]) -> String {
    match dims {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{fits, shape};

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name) in
            [("a.b", "a.b"), ("a.*", "a.b"), ("*.bias", "a.b.bias"), ("a*c*e", "abcde"), ("*", ""), ("a*", "a")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("*.bias", "bias"), ("a*c", "abcd"), ("a.*", "b.a.c"), ("", "a")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn shapes_are_written_as_tuples() {
        assert_eq!([shape(&[]), shape(&[4]), shape(&[2, 3])], ["()", "(4,)", "(2, 3)"]);
    }
}
