//! Parameters: their names and shapes in the model's order, seeded initial values, and all-or-nothing writes to the `VarMap`.

use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use indexmap::IndexMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::memory::reserve;

/// How a parameter starts (docs/mamba2.md, "Init").
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All elements the same.
    Constant(f64),
    /// Uniform in ±bound.
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
    /// `A_log`: the logarithm of a uniform number from low to high.
    LogOfUniform {
        /// Smallest −A.
        low: f64,
        /// Largest −A.
        high: f64,
    },
    /// `dt_bias`: the inverse softplus of a step Δ that is log-uniform from min to max and at least floor.
    StepBias {
        /// Smallest Δ.
        min: f64,
        /// Largest Δ.
        max: f64,
        /// Floor of Δ.
        floor: f64,
    },
}

impl Init {
    /// `PyTorch`'s default of linear layers: `kaiming_uniform(a=√5)`, which is uniform in ±1/√`fan_in`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a fan-in is far below 2^52
    pub fn kaiming(fan_in: usize) -> Self {
        Self::Uniform { bound: 1.0 / (fan_in as f64).sqrt() }
    }

    fn sample(self, rng: &mut ChaCha8Rng) -> f64 {
        let unit = |rng: &mut ChaCha8Rng| rng.random::<f64>();
        match self {
            Self::Constant(value) => value,
            Self::Uniform { bound } => bound * (2.0 * unit(rng) - 1.0),
            Self::LogOfUniform { low, high } => (low + (high - low) * unit(rng)).ln(),
            Self::StepBias { min, max, floor } => {
                let dt = (min.ln() + (max.ln() - min.ln()) * unit(rng)).exp().max(floor);
                dt + (-(-dt).exp_m1()).ln()
            }
        }
    }
}

/// One parameter that a module needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamSpec {
    /// Its name below the module, state-spaces' own.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its initial values.
    pub init: Init,
}

impl ParamSpec {
    /// A parameter `name` of `shape` that starts as `init`.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>, init: Init) -> Self {
        Self { name: name.into(), shape: shape.into(), init }
    }

    /// The same parameter below `prefix`.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        self.name = format!("{prefix}.{}", self.name);
        self
    }

    /// The parameter from `vb`: the value that is there, or a new variable with seeded values.
    ///
    /// The values depend on the seed and the full name only, not on what else was made before.
    pub fn get(&self, vb: &VarBuilder, seed: u64) -> Result<Tensor> {
        let known = vb.contains_tensor(&self.name);
        let shape = Shape::from(self.shape.clone());
        if !known {
            // Fails where a plain allocation would abort the process.
            drop(reserve::<f64>(shape.elem_count(), &self.name)?);
        }
        let tensor = vb.get_with_hints(shape, &self.name, candle_nn::Init::Const(0.0))?;
        if !known && tensor.is_variable() {
            let prefix = vb.prefix();
            let full = if prefix.is_empty() { self.name.clone() } else { format!("{prefix}.{}", self.name) };
            Var::from_tensor(&tensor)?.set(&self.initial(&full, seed, tensor.dtype(), tensor.device())?)?;
        }
        Ok(tensor)
    }

    fn initial(&self, full_name: &str, seed: u64, dtype: DType, device: &Device) -> Result<Tensor> {
        let mut rng = generator(seed, full_name);
        let mut values = reserve(self.shape.iter().product(), full_name)?;
        values.extend((0..values.capacity()).map(|_| self.init.sample(&mut rng)));
        Ok(Tensor::from_vec(values, self.shape.as_slice(), device)?.to_dtype(dtype)?)
    }
}

/// The generator of one parameter's values.
fn generator(seed: u64, full_name: &str) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(full_name.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// What a non-strict load left aside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Incompatible {
    /// The model's parameters that were not given.
    pub missing: Vec<String>,
    /// Names given that the model doesn't have.
    pub unexpected: Vec<String>,
}

/// The variables of a `VarMap` in the model's order. Every write is checked as a whole before its first byte.
#[derive(Clone)]
pub struct Parameters {
    varmap: VarMap,
    vars: IndexMap<String, Var>,
}

impl Parameters {
    /// The variables of `varmap` that `specs` name.
    ///
    /// # Errors
    /// [`Error::StateDict`] where the map lacks one of them or holds it in another shape.
    pub fn new(varmap: VarMap, specs: &[ParamSpec]) -> Result<Self> {
        let vars = {
            let data = lock(&varmap);
            let missing = specs.iter().filter(|spec| !data.contains_key(&spec.name)).map(|spec| spec.name.clone());
            Incompatible { missing: missing.collect(), unexpected: Vec::new() }.check()?;
            let found = specs.iter().filter_map(|spec| Some((spec, data.get(&spec.name)?)));
            let fits = |(spec, var): (&ParamSpec, &Var)| {
                if var.dims() == spec.shape {
                    Ok((spec.name.clone(), var.clone()))
                } else {
                    Err(misshapen(&spec.name, var.dims(), &spec.shape))
                }
            };
            found.map(fits).collect::<Result<_>>()?
        };
        Ok(Self { varmap, vars })
    }

    /// All variables that are in `varmap` now, sorted by name: Candle's map has no order.
    #[must_use]
    pub fn all(varmap: VarMap) -> Self {
        let mut vars: IndexMap<_, _> = lock(&varmap).iter().map(|(name, var)| (name.clone(), var.clone())).collect();
        vars.sort_keys();
        Self { varmap, vars }
    }

    /// The map that the variables live in.
    #[must_use]
    pub fn varmap(&self) -> &VarMap {
        &self.varmap
    }

    /// Names and variables in the model's order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Var)> {
        self.vars.iter().map(|(name, var)| (name.as_str(), var))
    }

    /// One variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Var> {
        self.vars.get(name)
    }

    /// How many numbers the parameters hold.
    #[must_use]
    pub fn elem_count(&self) -> usize {
        self.vars.values().map(|var| var.elem_count()).sum()
    }

    /// Tensors that share the variables' storage and record no graph: always the present values.
    #[must_use]
    pub fn detached(&self) -> std::collections::HashMap<String, Tensor> {
        self.iter().map(|(name, var)| (name.to_owned(), var.as_detached_tensor())).collect()
    }

    /// Sets the given parameters, all or none.
    ///
    /// `strict`: exactly the model's names must be given. Otherwise those that fit are set and the rest is reported.
    ///
    /// # Errors
    /// [`Error::StateDict`] (names, shapes), [`Error::DType`], [`Error::NonFinite`] unless `allow_nonfinite`.
    pub fn set(
        &mut self,
        values: &IndexMap<String, Tensor>,
        strict: bool,
        allow_nonfinite: bool,
    ) -> Result<Incompatible> {
        let report = Incompatible {
            missing: self.vars.keys().filter(|name| !values.contains_key(*name)).cloned().collect(),
            unexpected: values.keys().filter(|name| !self.vars.contains_key(*name)).cloned().collect(),
        };
        if strict {
            report.check()?;
        }
        let known: Vec<_> =
            values.iter().filter_map(|(name, value)| Some((name, value, self.vars.get(name)?))).collect();
        for (name, value, var) in &known {
            check_fits(name, value, var)?;
            if !allow_nonfinite {
                check_finite(name, value)?;
            }
        }
        for (_, value, var) in known {
            write(var, value)?;
        }
        Ok(report)
    }
}

impl Incompatible {
    fn check(&self) -> Result<()> {
        let part = |what: &str, names: &[String]| match names {
            [] => None,
            names => Some(format!("{what}: {}", names.join(", "))),
        };
        let parts: Vec<_> =
            [part("missing", &self.missing), part("unexpected", &self.unexpected)].into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { Err(Error::StateDict(parts.join("; "))) }
    }
}

fn check_fits(name: &str, value: &Tensor, var: &Var) -> Result<()> {
    if value.dtype() != var.dtype() {
        let dtype = |t: &Tensor| crate::dtype_name(t.dtype()).to_owned();
        return Err(Error::DType { what: name.into(), expected: dtype(var), got: dtype(value) });
    }
    if value.dims() != var.dims() {
        return Err(misshapen(name, value.dims(), var.dims()));
    }
    Ok(())
}

/// Candle refuses a value that shares the variable's own storage: such a view goes through a copy.
fn write(var: &Var, value: &Tensor) -> Result<()> {
    let value = value.to_device(var.device())?;
    match var.set(&value).map_err(Error::from) {
        Err(Error::Candle(candle_core::Error::CannotSetVar { .. })) => Ok(var.set(&value.copy()?)?),
        done => done,
    }
}

fn misshapen(name: &str, has: &[usize], needs: &[usize]) -> Error {
    let (has, needs) = (crate::error::shape(has), crate::error::shape(needs));
    Error::StateDict(format!("{name} has shape {has}, the model needs {needs}"))
}

/// Refuses a tensor that holds NaN or infinity.
pub fn check_finite(name: &str, value: &Tensor) -> Result<()> {
    if value.elem_count() == 0 {
        return Ok(());
    }
    // x − x is 0 for finite x and NaN otherwise; NaN is the only number unlike itself.
    let zero = value.sub(value)?;
    let count = zero.ne(&zero)?.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
    if count == 0.0 {
        return Ok(());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
    Err(Error::NonFinite { name: name.into(), count: count as usize })
}

/// The map's contents. A panic elsewhere while it was held leaves them usable: entries are never half-written.
pub fn lock(varmap: &VarMap) -> std::sync::MutexGuard<'_, std::collections::HashMap<String, Var>> {
    varmap.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
