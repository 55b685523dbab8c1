//! What the integration tests share: golden cases, the table of tolerances, and comparisons that name what differs.
#![allow(dead_code, clippy::unwrap_used)] // each test uses its part; a test's panic is its verdict

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mamba2::{Kernels, Mamba2Config, State};
use serde_json::Value;

/// Both forms of the mixer.
pub const KERNELS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];

/// One reference case, see `tests/golden/README.md`.
pub struct Golden {
    pub name: String,
    pub config: Value,
    /// What the plain recurrence loses in f32, by result.
    pub own_loss: HashMap<String, f64>,
    tensors: HashMap<String, Tensor>,
}

/// All cases of one kind without a mask or packed sequences.
pub fn golden(kind: &str) -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.sort();
    let cases = paths.iter().map(|path| Golden::read(path)).filter(|(found, _)| found == kind).map(|(_, case)| case);
    cases.filter(|case| !case.tensors.contains_key("mask") && !case.tensors.contains_key("seq_idx")).collect()
}

impl Golden {
    fn read(path: &Path) -> (String, Self) {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        let case = Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            config: serde_json::from_str(&metadata["config"]).unwrap(),
            own_loss: serde_json::from_str(&metadata["fp32"]).unwrap(),
            tensors: candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap(),
        };
        (metadata["kind"].clone(), case)
    }

    /// A tensor of the case in `dtype`, where the case has it.
    pub fn get(&self, name: &str, dtype: DType) -> Option<Tensor> {
        Some(self.tensors.get(name)?.to_dtype(dtype).unwrap())
    }

    pub fn tensor(&self, name: &str, dtype: DType) -> Tensor {
        self.get(name, dtype).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }

    /// The tensors whose names start with `prefix`, without it.
    pub fn below<'a>(&'a self, prefix: &'a str, dtype: DType) -> impl Iterator<Item = (String, Tensor)> + 'a {
        let below = self.tensors.iter().filter_map(move |(name, tensor)| Some((name.strip_prefix(prefix)?, tensor)));
        below.map(move |(name, tensor)| (name.to_owned(), tensor.to_dtype(dtype).unwrap()))
    }

    /// The state `prefix`.conv_state and `prefix`.ssm_state.
    pub fn state(&self, prefix: &str, dtype: DType) -> Option<State> {
        let conv = self.get(&format!("{prefix}.conv_state"), dtype)?;
        Some(State { conv, ssm: self.tensor(&format!("{prefix}.ssm_state"), dtype) })
    }

    /// The mixer's configuration.
    pub fn mixer(&self) -> Mamba2Config {
        let c = &self.config;
        let size = |name: &str| usize::try_from(c[name].as_u64().unwrap()).unwrap();
        let optional = |name: &str| c[name].as_u64().map(|x| usize::try_from(x).unwrap());
        let flag = |name: &str| c[name].as_bool().unwrap();
        Mamba2Config {
            d_state: size("d_state"),
            d_conv: size("d_conv"),
            expand: size("expand"),
            headdim: size("headdim"),
            d_ssm: optional("d_ssm"),
            ngroups: size("ngroups"),
            norm_groups: optional("norm_groups"),
            d_has_hdim: flag("D_has_hdim"),
            rmsnorm: flag("rmsnorm"),
            norm_before_gate: flag("norm_before_gate"),
            dt_limit: (c["dt_limit"][0].as_f64().unwrap(), c["dt_limit"][1].as_f64().unwrap_or(f64::INFINITY)),
            bias: flag("bias"),
            conv_bias: flag("conv_bias"),
            norm_eps: c["eps"].as_f64().unwrap(),
            ..Mamba2Config::new(size("d_model"))
        }
    }

    /// Fails, naming case, tensor and error, unless `got` is as near to the result `name` as the table asks.
    pub fn assert_close(&self, name: &str, got: &Tensor) {
        let want = self.tensor(name, DType::F64);
        let bound = tolerance(quantity(name), got.dtype(), self.own_loss.get(name).copied().unwrap_or(0.0));
        let underflows = self.name == "block_dt_huge" && name == "grad.param.A_log" && got.dtype() == DType::F32;
        let error = if underflows { max_abs_difference(got, &want) } else { relative_error(got, &want) };
        assert!(error <= bound, "{}: {name} is off by {error:e}, allowed {bound:e}", self.name);
    }
}

/// The bound on max|a−b| / max|b| from the project's one table. `quantity` as there.
pub fn tolerance(quantity: &str, dtype: DType, own_loss: f64) -> f64 {
    let table = include_str!("../../../../python/mamba2_bridge/parity/tolerances.json");
    let table: Value = serde_json::from_str(table).unwrap();
    let fits = |rule: &&Value| rule["quantity"] == quantity && rule["dtype"] == mamba2::dtype_name(dtype);
    let rule = table.as_array().unwrap().iter().find(fits).unwrap();
    let (flat, per_own_loss) = (rule["flat"].as_f64().unwrap(), rule["per_own_loss"].as_f64().unwrap());
    flat.max(per_own_loss * own_loss)
}

/// The quantity of the table that a golden result is.
fn quantity(result: &str) -> &'static str {
    if result.starts_with("grad.") {
        "grad"
    } else if result.starts_with("final") {
        "state"
    } else {
        "value"
    }
}

/// max|a−b| / max|b|; 0 where both are all zero, NaN where one isn't finite.
pub fn relative_error(got: &Tensor, want: &Tensor) -> f64 {
    let difference = max_abs_difference(got, want);
    let scale = values(want).into_iter().fold(0.0, |max: f64, x| if x.is_nan() { f64::NAN } else { max.max(x.abs()) });
    if difference == 0.0 { 0.0 } else { difference / scale }
}

fn max_abs_difference(got: &Tensor, want: &Tensor) -> f64 {
    assert_eq!(got.dims(), want.dims());
    let differences = values(got).into_iter().zip(values(want)).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |max: f64, x| if x.is_nan() { f64::NAN } else { max.max(x) })
}

/// All elements in f64.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Numbers that look random and are the same in every run, in ±1.
pub fn noise(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}
