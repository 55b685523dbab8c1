//! Faults that the probes find, each by name, and that they leave the variables as they were.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Error, Finding, Layout, probes};
use candle_core::{DType, Tensor, Var};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, SGD};
use common::{CPU, Passing, TwoLayers, add, bits, faults, linear, noise};

#[test]
fn an_optimizer_made_before_the_model_moves_nothing() {
    let varmap = candle_nn::VarMap::new();
    let mut early = AdamW::new(varmap.all_vars(), ParamsAdamW::default()).unwrap();
    let layer = linear(&varmap, "layer", 3, 2, DType::F32);
    let loss = || layer.forward(&noise(1, &[4, 3], DType::F32))?.sqr()?.mean_all();
    let found = faults(probes::step(|| early.backward_step(&loss()?), &varmap, &[]));
    assert_eq!(found, ["layer.bias", "layer.weight"].map(|name| Finding::NotMoved { name: name.to_owned() }));
    let mut late = AdamW::new(varmap.all_vars(), ParamsAdamW::default()).unwrap();
    probes::step(|| late.backward_step(&loss()?), &varmap, &[]).unwrap();
}

#[test]
fn gradients_that_the_optimizer_ignores_move_nothing() {
    let model = TwoLayers::new(DType::F64);
    let mut optimizer = SGD::new(model.varmap.all_vars(), 0.1).unwrap();
    let step = || {
        let _thrown_away = model.loss(|hidden| Ok(hidden.clone()))?.backward()?;
        let unrelated = Var::new(1.0, &CPU)?;
        optimizer.step(&unrelated.sqr()?.backward()?)
    };
    let found = faults(probes::step(step, &model.varmap, &["head.*"]));
    assert_eq!(found, ["encoder.bias", "encoder.weight"].map(|name| Finding::NotMoved { name: name.to_owned() }));
}

#[test]
fn frozen_variables_must_not_move() {
    let model = TwoLayers::new(DType::F64);
    let mut optimizer = SGD::new(model.varmap.all_vars(), 0.1).unwrap();
    let step = || optimizer.backward_step(&model.loss(|hidden| Ok(hidden.clone()))?);
    let found = faults(probes::step(step, &model.varmap, &["head.bias"]));
    assert_eq!(found, [Finding::FrozenMoved { name: "head.bias".to_owned() }]);
    let mut endless = SGD::new(model.varmap.all_vars(), f64::INFINITY).unwrap();
    let step = || endless.backward_step(&model.loss(|hidden| Ok(hidden.clone()))?);
    let found = faults(probes::step(step, &model.varmap, &[]));
    assert!(
        matches!(&found[0], Finding::NonFiniteValue { name, count: 4, total: 4 } if name == "encoder.bias"),
        "{found:?}"
    );
}

#[test]
fn a_stale_derived_tensor_is_named() {
    let model = TwoLayers::new(DType::F64);
    let a_log = add(&model.varmap, "A_log", &[4], DType::F64);
    let before = bits(&model.varmap);
    let kept = a_log.exp().unwrap().neg().unwrap(); // in a constructor
    let stale = || model.loss(|hidden| hidden.broadcast_mul(&kept));
    // A gradient flows, so that an audit of the graph sees nothing.
    candle_audit::audit(&stale().unwrap(), &model.varmap).check().unwrap();
    let found = faults(probes::staleness(stale, &model.varmap, &[]));
    assert_eq!(found, [Finding::Stale { name: "A_log".to_owned() }]);
    probes::staleness(stale, &model.varmap, &["A_*"]).unwrap();
    let fresh = || model.loss(|hidden| hidden.broadcast_mul(&a_log.exp()?.neg()?));
    probes::staleness(fresh, &model.varmap, &[]).unwrap();
    assert_eq!(bits(&model.varmap), before);
}

#[test]
fn values_return_after_errors() {
    let model = TwoLayers::new(DType::F64);
    let before = bits(&model.varmap);
    let mut runs = 0;
    let failing = || {
        runs += 1;
        if runs > 2 {
            candle_core::bail!("out of luck")
        }
        model.loss(|hidden| Ok(hidden.clone()))
    };
    assert_eq!(probes::staleness(failing, &model.varmap, &[]).unwrap_err().to_string(), "out of luck");
    assert_eq!(bits(&model.varmap), before);
}

#[test]
fn zeros_without_initial_values_are_named() {
    let model = TwoLayers::new(DType::F32);
    probes::initialisation(&model.varmap, &[]).unwrap();
    model.builder().get((4, 4), "mixing").unwrap(); // Candle's `get` on a VarMap makes zeros
    let found = faults(probes::initialisation(&model.varmap, &[]));
    assert_eq!(found, [Finding::OnlyZeros { name: "mixing".to_owned() }]);
    probes::initialisation(&model.varmap, &["mixing"]).unwrap();
}

#[test]
fn rounding_that_no_graph_shows_is_named() {
    let model = TwoLayers::new(DType::F64);
    let before = bits(&model.varmap);
    let exact = || model.loss(|hidden| hidden.apply_op1(Passing { factor: Some(1.0), through_f32: false }));
    probes::precision(exact, &model.varmap, &[]).unwrap();
    let rounded = || model.loss(|hidden| hidden.apply_op1(Passing { factor: Some(1.0), through_f32: true }));
    candle_audit::audit(&rounded().unwrap(), &model.varmap).check().unwrap();
    let found = faults(probes::precision(rounded, &model.varmap, &[]));
    let names: Vec<_> = found.iter().filter_map(Finding::name).collect();
    assert_eq!(names, ["encoder.bias", "encoder.weight"], "{found:?}");
    assert!(found.iter().all(|finding| matches!(finding, Finding::LostPrecision { .. })), "{found:?}");
    let cast = || model.loss(|hidden| Ok(hidden.clone()))?.to_dtype(DType::F32)?.to_dtype(DType::F64);
    assert_eq!(faults(probes::precision(cast, &model.varmap, &[])).len(), 4);
    assert_eq!(bits(&model.varmap), before);
}

#[test]
fn inputs_are_probed_as_named_variables() {
    let model = TwoLayers::new(DType::F64);
    let input = Var::from_tensor(&model.x).unwrap();
    let loss = || {
        model
            .head
            .forward(&model.encoder.forward(&input.to_dtype(DType::F32)?.to_dtype(DType::F64)?)?)?
            .sqr()?
            .mean_all()
    };
    let found = faults(probes::precision(loss, [("input", input.clone())], &[]));
    assert!(matches!(&found[..], [Finding::LostPrecision { name, .. }] if name == "input"), "{found:?}");
    let unused = Var::new(1.0, &CPU).unwrap();
    let found = faults(probes::precision(loss, [("unused", unused)], &[]));
    assert_eq!(found, [Finding::Insensitive { name: "unused".to_owned() }]);
}

#[test]
fn a_linear_layer_on_a_transposed_batch_is_found() {
    for dtype in [DType::F32, DType::F64] {
        let layer = linear(&candle_nn::VarMap::new(), "layer", 4, 2, dtype);
        let x = noise(1, &[2, 4, 3], dtype).transpose(1, 2).unwrap(); // (batch, seqlen, features), stored the other way round
        let found = faults(probes::layout(|inputs| layer.forward(&inputs[0]), &[("x", &x)]));
        let layouts: Vec<_> = found
            .iter()
            .map(|finding| match finding {
                Finding::LayoutChangesValues { input, layout, difference, scale } => {
                    assert!(input == "x" && difference > &(0.1 * scale), "{finding}");
                    *layout
                }
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(layouts, [Layout::Given, Layout::Transposed]);
        probes::layout(|inputs| layer.forward(&inputs[0].contiguous()?), &[("x", &x)]).unwrap();
    }
}

#[test]
fn random_models_are_refused() {
    let model = TwoLayers::new(DType::F64);
    let mut run = 0.0;
    let random = || {
        run += 1.0;
        model.loss(|hidden| hidden + run)
    };
    assert!(matches!(probes::staleness(random, &model.varmap, &[]), Err(Error::NotDeterministic { .. })));
}

#[test]
fn refused_layouts_are_no_fault() {
    let x = noise(1, &[2, 3], DType::F64);
    probes::layout(|inputs| candle_nn::ops::softmax_last_dim(&inputs[0]), &[("x", &x)]).unwrap();
    let sum = |inputs: &[Tensor]| inputs[0].add(&inputs[1]);
    assert_eq!(probes::layout(sum, &[("a", &x), ("b", &x)]).unwrap().looked_at(), 2);
}
