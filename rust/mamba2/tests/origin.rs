//! The origin of this project as regression tests: models that train without an error and learn nothing, or the wrong
//! thing. Each is broken in one place, and the check that is there for it must name the parameter or the place.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, VarBuilder, VarMap};
use common::noise;
use mamba2::gradients::collect;
use mamba2::optim::{AdamW, AdamWConfig};
use mamba2::params::lock;
use mamba2::{Error, Mamba2, Mamba2Config, Parameters, audit};

const CPU: Device = Device::Cpu;

fn config() -> Mamba2Config {
    Mamba2Config { d_state: 4, headdim: 4, ..Mamba2Config::new(8) }
}

/// A projection and a mixer behind it, as someone would write them in Candle.
struct Regressor {
    encoder: Tensor,
    mixer: Mamba2,
    varmap: VarMap,
}

impl Regressor {
    fn new() -> Self {
        let varmap = VarMap::new();
        let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
        let encoder = vb.get_with_hints((3, 8), "encoder", candle_nn::init::DEFAULT_KAIMING_NORMAL).unwrap();
        Self { encoder, mixer: Mamba2::new(&config(), vb.pp("mixer")).unwrap(), varmap }
    }

    fn encode(&self, x: &Tensor) -> Tensor {
        let (batch, seqlen, width) = x.dims3().unwrap();
        x.reshape((batch * seqlen, width)).unwrap().matmul(&self.encoder).unwrap().reshape((batch, seqlen, 8)).unwrap()
    }

    fn named(&self) -> Vec<(String, Var)> {
        let mut vars: Vec<_> = lock(&self.varmap).iter().map(|(name, var)| (name.clone(), var.clone())).collect();
        vars.sort_by(|a, b| a.0.cmp(&b.0));
        vars
    }

    fn check(&self, loss: &Tensor) -> mamba2::Result<()> {
        let vars = self.named();
        collect(vars.iter().map(|(name, var)| (name.as_str(), var)), &loss.backward()?).map(|_| ())
    }
}

fn loss(y: &Tensor) -> Tensor {
    y.sqr().unwrap().mean_all().unwrap()
}

fn missing(result: mamba2::Result<()>) -> Vec<String> {
    match result {
        Err(Error::MissingGradient { names, .. }) => names,
        other => panic!("expected a missing gradient, got {other:?}"),
    }
}

#[test]
fn the_healthy_model_passes() {
    let model = Regressor::new();
    let x = noise(1, &[2, 5, 3], DType::F64);
    model.check(&loss(&model.mixer.forward(&model.encode(&x), None).unwrap().0)).unwrap();
}

#[test]
fn a_detached_input_is_named() {
    let model = Regressor::new();
    let u = model.encode(&noise(1, &[2, 5, 3], DType::F64)).detach();
    let names = missing(model.check(&loss(&model.mixer.forward(&u, None).unwrap().0)));
    assert_eq!(names, ["encoder"]);
}

#[test]
fn plain_tensors_in_place_of_parameters_are_named() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    let specs = config().parameters().unwrap();
    for spec in specs.iter().filter(|spec| !matches!(spec.name.as_str(), "A_log" | "D" | "dt_bias")) {
        spec.get(&vb, 0).unwrap(); // the three others would be Tensor::ones, in no map and in no graph
    }
    let error = Parameters::new(varmap, &specs).err().unwrap();
    assert_eq!(error.to_string(), "missing: dt_bias, A_log, D; nothing was loaded");
}

#[test]
fn parameters_outside_the_varmap_are_named() {
    let kept = Regressor::new();
    let lost = VarMap::new(); // made by a constructor and dropped by it
    let mixer = Mamba2::new(&config(), VarBuilder::from_varmap(&lost, DType::F64, &CPU)).unwrap();
    let y = mixer.forward(&kept.encode(&noise(1, &[2, 5, 3], DType::F64)), None).unwrap().0;
    let names = missing(kept.check(&loss(&y)));
    assert!(names.contains(&"mixer.A_log".to_owned()) && !names.contains(&"encoder".to_owned()), "{names:?}");
}

#[test]
fn gradients_that_are_not_extracted_are_named() {
    let model = Regressor::new();
    let (x, unrelated) = (noise(1, &[2, 5, 3], DType::F64), Var::new(1.0, &CPU).unwrap());
    let _thrown_away = loss(&model.mixer.forward(&model.encode(&x), None).unwrap().0).backward().unwrap();
    let mut optimizer = AdamW::from_varmap(&model.varmap, AdamWConfig::default()).unwrap();
    let error = optimizer.step(&unrelated.sqr().unwrap().backward().unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("9 of 9 parameters got no gradient: encoder, mixer.A_log, "), "{error}");
}

#[test]
fn a_loss_through_f32_is_named() {
    let model = Regressor::new();
    let y = model.mixer.forward(&model.encode(&noise(1, &[2, 5, 3], DType::F64)), None).unwrap().0;
    let healthy = loss(&y);
    audit::graph_dtype(&healthy, DType::F64).unwrap();
    let squeezed = loss(&y.to_dtype(DType::F32).unwrap()).to_dtype(DType::F64).unwrap();
    let error = audit::graph_dtype(&squeezed, DType::F64).unwrap_err().to_string();
    assert_eq!(error, "a node of the graph, of shape (2, 5, 8), must be float64, got float32");
}

#[test]
fn a_stale_derived_tensor_is_named() {
    let a_log = Var::from_tensor(&noise(1, &[4], DType::F64)).unwrap();
    let derived = a_log.exp().unwrap().neg().unwrap(); // kept from a constructor, as many ports do
    let vars = [("A_log".to_owned(), a_log.clone())];
    audit::fresh(&vars, || Ok(a_log.exp()?.neg()?)).unwrap();
    let error = audit::fresh(&vars, || Ok(derived.clone())).unwrap_err().to_string();
    assert_eq!(error, "1 of 1 parameters change nothing when they are set: A_log. A value made from them was kept.");

    let model = Regressor::new();
    let x = noise(1, &[2, 5, 3], DType::F64);
    audit::fresh(&model.named(), || Ok(model.mixer.forward(&model.encode(&x), None)?.0)).unwrap();
}

#[test]
fn a_zero_initialised_get_is_named() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    vb.get((3, 8), "encoder").unwrap(); // Candle's `get` on a VarMap makes zeros
    Mamba2::new(&config(), vb.pp("mixer")).unwrap();
    let error = audit::initialised(&varmap, &[]).unwrap_err().to_string();
    assert_eq!(error, "1 of 9 parameters hold only zeros: encoder. They were made without initial values.");
    audit::initialised(&Regressor::new().varmap, &[]).unwrap();
}
