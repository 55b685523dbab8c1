//! The origin of this project as regression tests: models that train without an error and learn nothing, or the wrong
//! thing. Each is broken in one place, and the check that is there for it must name the parameter or the place.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Error as AuditError, Finding, Report, audit, probes};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, VarBuilder, VarMap};
use common::noise;
use mamba2::optim::{AdamW, AdamWConfig};
use mamba2::{Mamba2, Mamba2Config, Parameters};

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

    #[allow(clippy::disallowed_methods)] // a user's own layer
    fn encode(&self, x: &Tensor) -> Tensor {
        let (batch, seqlen, width) = x.dims3().unwrap();
        x.reshape((batch * seqlen, width)).unwrap().matmul(&self.encoder).unwrap().reshape((batch, seqlen, 8)).unwrap()
    }
}

fn loss(y: &Tensor) -> Tensor {
    y.sqr().unwrap().mean_all().unwrap()
}

/// What an audit or a probe must have found.
fn faults(result: candle_audit::Result<Report>) -> Vec<Finding> {
    match result {
        Err(AuditError::Faults(report)) => report.findings().to_vec(),
        other => panic!("expected faults, got {other:?}"),
    }
}

#[test]
fn the_healthy_model_passes() {
    let model = Regressor::new();
    let x = noise(1, &[2, 5, 3], DType::F64);
    let y = model.mixer.forward(&model.encode(&x), None).unwrap().0;
    candle_audit::assert_trains!(loss(&y), model.varmap);
}

#[test]
fn a_detached_input_is_named() {
    let model = Regressor::new();
    let u = model.encode(&noise(1, &[2, 5, 3], DType::F64)).detach();
    let found = faults(audit(&loss(&model.mixer.forward(&u, None).unwrap().0), &model.varmap).check());
    assert_eq!(found, [Finding::NotReached { name: "encoder".to_owned() }]);
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
    let found = faults(audit(&loss(&y), &kept.varmap).check());
    let (strangers, unreached): (Vec<_>, Vec<_>) =
        found.iter().partition(|finding| matches!(finding, Finding::NotInMap { .. }));
    assert_eq!(strangers.len(), 8, "{found:?}"); // the mixer's parameters that the loss does depend on
    assert_eq!(unreached.len(), 8, "{found:?}");
    assert!(unreached.contains(&&Finding::NotReached { name: "mixer.A_log".to_owned() }), "{found:?}");
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
    audit(&healthy, &model.varmap).check().unwrap();
    let squeezed = loss(&y.to_dtype(DType::F32).unwrap()).to_dtype(DType::F64).unwrap();
    let found = faults(audit(&squeezed, &model.varmap).without_backward().check());
    let Finding::OtherDType { node, expected: DType::F64 } = &found[0] else { panic!("{found:?}") };
    assert_eq!((node.shape.as_slice(), node.dtype), ([2, 5, 8].as_slice(), DType::F32));
}

#[test]
fn a_stale_derived_tensor_is_named() {
    let a_log = Var::from_tensor(&noise(1, &[4], DType::F64)).unwrap();
    let derived = a_log.exp().unwrap().neg().unwrap(); // kept from a constructor, as many ports do
    let vars = || [("A_log", a_log.clone())];
    probes::staleness(|| a_log.exp()?.neg(), vars(), &[]).unwrap();
    let found = faults(probes::staleness(|| Ok(derived.clone()), vars(), &[]));
    assert_eq!(found, [Finding::Stale { name: "A_log".to_owned() }]);

    let model = Regressor::new();
    let x = noise(1, &[2, 5, 3], DType::F64);
    probes::staleness(|| Ok(model.mixer.forward(&model.encode(&x), None)?.0), &model.varmap, &[]).unwrap();
}

#[test]
fn a_zero_initialised_get_is_named() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    vb.get((3, 8), "encoder").unwrap(); // Candle's `get` on a VarMap makes zeros
    Mamba2::new(&config(), vb.pp("mixer")).unwrap();
    let found = faults(probes::initialisation(&varmap, &[]));
    assert_eq!(found, [Finding::OnlyZeros { name: "encoder".to_owned() }]);
    probes::initialisation(&Regressor::new().varmap, &[]).unwrap();
}
