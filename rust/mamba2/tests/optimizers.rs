//! Optimizers: resuming, freezing, decay, and gradients that are missing. Equality with torch is tested from Python.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_core::{DType, Device};
use common::{noise, values};
use mamba2::optim::{AdamW, AdamWConfig, AnyOptimizer, Sgd, SgdConfig, clip_grad_norm};
use mamba2::{Architecture, Error, Gradients, Mamba2Config, Model};

fn model() -> Model {
    let config = Mamba2Config { d_state: 4, headdim: 4, ..Mamba2Config::new(8) };
    Model::new(&Architecture::Mixer(config), DType::F32, &Device::Cpu, 0).unwrap()
}

fn gradients(model: &Model, seed: u64) -> Gradients {
    let x = noise(seed, &[2, 5, 8], DType::F32);
    model.forward(&x, None).unwrap().backward(model, &x, None).unwrap()
}

fn all(model: &Model) -> Vec<Vec<f64>> {
    model.parameters().iter().map(|(_, var)| values(var)).collect()
}

fn vars(model: &Model) -> Vec<(String, candle_core::Var)> {
    model.parameters().iter().map(|(name, var)| (name.to_owned(), var.clone())).collect()
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let whole = model();
    let mut optimizer = AdamW::from_named(vars(&whole), AdamWConfig::default()).unwrap();
    for seed in 0..6 {
        optimizer.step_named(&gradients(&whole, seed)).unwrap();
    }
    let parts = model();
    let mut first = AdamW::from_named(vars(&parts), AdamWConfig::default()).unwrap();
    for seed in 0..3 {
        first.step_named(&gradients(&parts, seed)).unwrap();
    }
    let mut second = AdamW::from_named(vars(&parts), AdamWConfig { lr: 1.0, ..AdamWConfig::default() }).unwrap();
    second.load_state(&first.state()).unwrap();
    for seed in 3..6 {
        second.step_named(&gradients(&parts, seed)).unwrap();
    }
    assert_eq!(all(&whole), all(&parts));
}

#[test]
fn a_state_that_lacks_something_changes_nothing() {
    let model = model();
    let mut optimizer = Sgd::from_named(vars(&model), SgdConfig { momentum: 0.9, ..SgdConfig::default() }).unwrap();
    optimizer.step_named(&gradients(&model, 0)).unwrap();
    let before = optimizer.state();
    let mut broken = before.clone();
    broken.scalars.insert("lr".into(), 0.5);
    broken.tensors.shift_remove("momentum_buffer.D");
    assert_eq!(
        optimizer.load_state(&broken).unwrap_err().to_string(),
        "momentum_buffer.D is missing; nothing was loaded"
    );
    assert_eq!(optimizer.state().scalars, before.scalars);
}

#[test]
fn frozen_parameters_stay_and_the_others_move() {
    let model = model();
    let before = all(&model);
    let config = AdamWConfig { freeze: vec!["conv1d.*".into(), "D".into()], ..AdamWConfig::default() };
    AdamW::from_named(vars(&model), config).unwrap().step_named(&gradients(&model, 0)).unwrap();
    let names = model.parameters().iter().map(|(name, _)| name.to_owned());
    for ((name, before), after) in names.zip(before).zip(all(&model)) {
        assert_eq!(before == after, name.starts_with("conv1d.") || name == "D", "{name}");
    }
    let typo = AdamWConfig { freeze: vec!["conv2d.*".into()], ..AdamWConfig::default() };
    let error = AdamW::from_named(vars(&model), typo).unwrap_err();
    assert_eq!(error.to_string(), "freeze must be patterns that match a parameter each, got \"conv2d.*\"");
}

#[test]
fn only_matrices_decay() {
    let model = model();
    let before = all(&model);
    let config = SgdConfig { lr: 0.1, weight_decay: 0.5, ..SgdConfig::default() };
    let mut optimizer = Sgd::from_named(vars(&model), config).unwrap();
    let mut none = gradients(&model, 0);
    none.scale(0.0).unwrap();
    optimizer.step_named(&none).unwrap();
    let names = model.parameters().iter().map(|(name, _)| name.to_owned());
    for ((name, before), after) in names.zip(before).zip(all(&model)) {
        let decays = matches!(name.as_str(), "in_proj.weight" | "conv1d.weight" | "out_proj.weight");
        assert_eq!(before != after, decays, "{name}");
    }
}

#[test]
fn a_missing_gradient_is_named_and_nothing_is_written() {
    let model = model();
    let before = all(&model);
    let grads = gradients(&model, 0);
    let part = grads.iter().filter(|(name, _)| *name != "A_log").map(|(name, grad)| (name.to_owned(), grad.clone()));
    let part = Gradients::new(part.collect(), grads.input.clone(), None);
    let error = AdamW::from_named(vars(&model), AdamWConfig::default()).unwrap().step_named(&part).unwrap_err();
    assert!(matches!(&error, Error::MissingGradient { names, .. } if names == &["A_log"]), "{error}");
    assert_eq!(all(&model), before);
}

#[test]
fn clipping_bounds_the_common_norm() {
    let model = model();
    let norm = |grads: &Gradients| grads.norms().unwrap().values().map(|norm| norm * norm).sum::<f64>().sqrt();
    let mut grads = gradients(&model, 0);
    let before = norm(&grads);
    assert_eq!(clip_grad_norm(&mut grads, before * 2.0).unwrap().to_bits(), before.to_bits());
    assert_eq!(norm(&grads).to_bits(), before.to_bits());
    clip_grad_norm(&mut grads, before / 2.0).unwrap();
    assert!((norm(&grads) / before - 0.5).abs() < 1e-5);
    assert!(clip_grad_norm(&mut grads, -1.0).is_err());
}

#[test]
fn hyperparameters_are_checked() {
    let model = model();
    let wrong = [
        AdamWConfig { lr: -1.0, ..AdamWConfig::default() },
        AdamWConfig { betas: (1.0, 0.9), ..AdamWConfig::default() },
        AdamWConfig { eps: f64::NAN, ..AdamWConfig::default() },
        AdamWConfig { weight_decay: f64::INFINITY, ..AdamWConfig::default() },
    ];
    for config in wrong {
        assert!(matches!(AdamW::from_named(vars(&model), config), Err(Error::Config { .. })));
    }
}
