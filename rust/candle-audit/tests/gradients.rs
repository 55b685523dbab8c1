//! Wrong gradients, which only finite differences find.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Agreement, Error, GradientReport, Options, check_gradients};
use candle_core::{DType, Tensor};
use candle_nn::{Conv1d, Conv1dConfig, Module, VarMap};
use common::{CPU, Passing, TwoLayers, add, bits, noise};

fn wrong(result: candle_audit::Result<GradientReport>) -> GradientReport {
    match result {
        Err(Error::Gradients(report)) => report,
        other => panic!("expected wrong gradients, got {other:?}"),
    }
}

fn names(report: &GradientReport) -> Vec<&str> {
    report.faults().map(|check| check.name.as_str()).collect()
}

#[test]
fn a_kernel_gradient_of_conv1d_is_named() {
    let varmap = VarMap::new();
    let (weight, bias) = (add(&varmap, "weight", &[2, 3, 3], DType::F64), add(&varmap, "bias", &[2], DType::F64));
    let conv = Conv1d::new(weight, Some(bias), Conv1dConfig { padding: 1, ..Conv1dConfig::default() });
    let x = noise(3, &[2, 3, 7], DType::F64); // (batch, channels, seqlen)
    let report = wrong(check_gradients(|| conv.forward(&x)?.tanh()?.sqr()?.sum_all(), &varmap, &Options::default()));
    assert_eq!(names(&report), ["weight"]);
    assert_eq!(report.get("weight").unwrap().factor(), None);
    assert_eq!(report.get("bias").unwrap().agreement(), Agreement::Agrees);
}

#[test]
fn factors_and_signs_are_told() {
    let model = TwoLayers::new(DType::F64);
    let before = bits(&model.varmap);
    for factor in [2.0, -1.0] {
        let loss = || model.loss(|hidden| hidden.apply_op1(Passing { factor: Some(factor), through_f32: false }));
        let report = wrong(check_gradients(loss, &model.varmap, &Options::default()));
        assert_eq!(names(&report), ["encoder.bias", "encoder.weight"]);
        for check in report.faults() {
            assert!((check.factor().unwrap() - factor).abs() < 1e-6, "{check}");
        }
        assert!(report.to_string().contains(&format!("{factor:.4} times what it should be")), "{report}");
    }
    assert_eq!(bits(&model.varmap), before);
    let right = || model.loss(|hidden| hidden.apply_op1(Passing { factor: Some(1.0), through_f32: false }));
    let strict = Options { relative: 1e-9, ..Options::default() };
    assert_eq!(check_gradients(right, &model.varmap, &strict).unwrap().variables.len(), 4);
    assert_eq!(bits(&model.varmap), before);
}

#[test]
fn a_small_error_shows() {
    let model = TwoLayers::new(DType::F64);
    let loss = || model.loss(|hidden| hidden.apply_op1(Passing { factor: Some(1.0 + 1e-7), through_f32: false }));
    check_gradients(loss, &model.varmap, &Options::default()).unwrap();
    let strict = Options { relative: 1e-9, only: Some(vec!["encoder.*".to_owned()]), ..Options::default() };
    assert_eq!(names(&wrong(check_gradients(loss, &model.varmap, &strict))), ["encoder.bias", "encoder.weight"]);
}

#[test]
fn missing_gradients_are_named() {
    let model = TwoLayers::new(DType::F64);
    let loss = || model.loss(|hidden| Ok(hidden.detach()));
    let report = wrong(check_gradients(loss, &model.varmap, &Options::default()));
    assert_eq!(names(&report), ["encoder.bias", "encoder.weight"]);
    assert_eq!(report.get("encoder.bias").unwrap().agreement(), Agreement::Missing);
}

#[test]
fn what_cant_be_checked_is_an_error() {
    let model = TwoLayers::new(DType::F32);
    let error = check_gradients(|| model.loss(|h| Ok(h.clone())), &model.varmap, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "encoder.bias must be f64, got f32");

    let model = TwoLayers::new(DType::F64);
    let error = check_gradients(|| model.encoder.forward(&model.x), &model.varmap, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "the loss must have one element, got shape (5, 4)");

    let mut run = 0.0;
    let random = || {
        run += 1.0;
        model.loss(|hidden| hidden + run)
    };
    assert!(matches!(check_gradients(random, &model.varmap, &Options::default()), Err(Error::NotDeterministic { .. })));
}

#[test]
fn values_return_after_errors() {
    let model = TwoLayers::new(DType::F64);
    let before = bits(&model.varmap);
    let mut runs = 0;
    let failing = || {
        runs += 1;
        if runs > 5 {
            candle_core::bail!("out of luck")
        }
        model.loss(|hidden| Ok(hidden.clone()))
    };
    let error = check_gradients(failing, &model.varmap, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "out of luck");
    assert_eq!(bits(&model.varmap), before);
}

#[test]
fn a_loss_that_is_nowhere_smooth_is_undecided() {
    let varmap = VarMap::new();
    let w = add(&varmap, "w", &[4], DType::F64);
    let rough = || {
        let steps = w.affine(1e12, 0.0)?.floor()?.affine(1e-12, 0.0)?; // a staircase, with a gradient of zeros
        (w.sqr()? * 0.0)?.add(&Tensor::new(&[1.0, 1.0, 1.0, 1.0], &CPU)?.mul(&steps)?)?.sum_all()
    };
    assert_eq!(names(&wrong(check_gradients(rough, &varmap, &Options::default()))), ["w"]);
}
