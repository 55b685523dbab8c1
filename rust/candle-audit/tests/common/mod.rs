//! Small models and operations that the integration tests share.
#![allow(dead_code, clippy::unwrap_used)] // each test uses its part; a test's panic is its verdict

use candle_audit::{Error, Finding, Report};
use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var};
use candle_nn::{Linear, Module, VarBuilder, VarMap};
use rand::{RngExt, SeedableRng};

pub const CPU: Device = Device::Cpu;

/// Numbers in ±1 that are the same in every run.
pub fn noise(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(numbers, shape, &CPU).unwrap().to_dtype(dtype).unwrap()
}

/// A variable of `noise` in a map.
pub fn add(varmap: &VarMap, name: &str, shape: &[usize], dtype: DType) -> Tensor {
    let seed = name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let var = Var::from_tensor(&noise(seed, shape, dtype)).unwrap();
    let tensor = var.as_tensor().clone();
    varmap.data().lock().unwrap().insert(name.to_owned(), var);
    tensor
}

pub fn linear(varmap: &VarMap, name: &str, from: usize, to: usize, dtype: DType) -> Linear {
    let weight = add(varmap, &format!("{name}.weight"), &[to, from], dtype);
    Linear::new(weight, Some(add(varmap, &format!("{name}.bias"), &[to], dtype)))
}

/// An encoder and a head, with a place between them for what goes wrong.
pub struct TwoLayers {
    pub varmap: VarMap,
    pub encoder: Linear,
    pub head: Linear,
    pub x: Tensor,
}

impl TwoLayers {
    pub fn new(dtype: DType) -> Self {
        let varmap = VarMap::new();
        let (encoder, head) = (linear(&varmap, "encoder", 3, 4, dtype), linear(&varmap, "head", 4, 2, dtype));
        Self { varmap, encoder, head, x: noise(1, &[5, 3], dtype) }
    }

    pub fn loss(&self, between: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let hidden = between(&self.encoder.forward(&self.x)?)?;
        self.head.forward(&hidden)?.tanh()?.sqr()?.mean_all()
    }

    pub fn builder(&self) -> VarBuilder<'static> {
        VarBuilder::from_varmap(&self.varmap, self.x.dtype(), &CPU)
    }
}

/// The faults that a check must have found.
pub fn faults(result: candle_audit::Result<Report>) -> Vec<Finding> {
    match result {
        Err(Error::Faults(report)) => report.findings().to_vec(),
        other => panic!("expected faults, got {other:?}"),
    }
}

pub fn not_reached(names: &[&str]) -> Vec<Finding> {
    names.iter().map(|name| Finding::NotReached { name: (*name).to_owned() }).collect()
}

/// The values as they are, in bits.
pub fn bits(varmap: &VarMap) -> Vec<(String, Vec<u64>)> {
    let data = varmap.data().lock().unwrap();
    let of = |var: &Var| {
        let flat = var.as_detached_tensor().to_dtype(DType::F64).unwrap().flatten_all().unwrap();
        flat.to_vec1::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
    };
    let mut bits: Vec<_> = data.iter().map(|(name, var)| (name.clone(), of(var))).collect();
    bits.sort();
    bits
}

/// x ↦ x, with `factor` times its gradient, or none; `through_f32` rounds inside, where no graph shows it.
pub struct Passing {
    pub factor: Option<f64>,
    pub through_f32: bool,
}

impl CustomOp1 for Passing {
    fn name(&self) -> &'static str {
        "passing"
    }

    #[allow(clippy::cast_possible_truncation)] // that is the fault
    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (from, to) = layout.contiguous_offsets().unwrap();
        let CpuStorage::F64(values) = storage else { panic!("f64 only") };
        let round = |x: &f64| if self.through_f32 { f64::from(*x as f32) } else { *x };
        Ok((CpuStorage::F64(values[from..to].iter().map(round).collect()), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, upstream: &Tensor) -> Result<Option<Tensor>> {
        self.factor.map(|factor| upstream.affine(factor, 0.0)).transpose()
    }
}
