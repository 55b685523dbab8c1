//! Faults that an audit of the graph and of the gradients finds, each by name.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Error, Finding, Node, assert_trains, audit};
use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, Var};
use candle_nn::{Module, RmsNorm, VarMap, ops};
use common::{CPU, Passing, TwoLayers, add, faults, noise, not_reached};

fn named(name: &str) -> String {
    name.to_owned()
}

#[test]
fn a_detached_input_is_named() {
    let model = TwoLayers::new(DType::F64);
    let loss = model.loss(|hidden| Ok(hidden.detach())).unwrap();
    assert_eq!(faults(audit(&loss, &model.varmap).check()), not_reached(&["encoder.bias", "encoder.weight"]));
}

#[test]
fn a_loss_without_graph_is_said_to_have_none() {
    let model = TwoLayers::new(DType::F32);
    let loss = model.loss(|hidden| Ok(hidden.clone())).unwrap().detach();
    let found = faults(audit(&loss, &model.varmap).check());
    assert_eq!(found[0], Finding::NoGraph);
    assert_eq!(found[1..], not_reached(&["encoder.bias", "encoder.weight", "head.bias", "head.weight"]));
}

#[test]
fn plain_tensors_in_place_of_parameters_are_named() {
    let model = TwoLayers::new(DType::F64);
    let scale = Tensor::ones(4, DType::F64, &CPU).unwrap(); // meant as a parameter
    let loss = model.loss(|hidden| hidden.broadcast_mul(&scale)).unwrap();
    audit(&loss, &model.varmap).check().unwrap();
    let expected =
        [("encoder.bias", vec![4]), ("encoder.weight", vec![4, 3]), ("head.weight", vec![4, 2]), ("scale", vec![4])];
    let found = faults(audit(&loss, &model.varmap).expecting(expected).check());
    let shape = Finding::VariableShape { name: named("head.weight"), expected: vec![4, 2], got: vec![2, 4] };
    let absent = Finding::Absent { name: named("scale"), shape: vec![4] };
    assert_eq!(found, [shape, absent, Finding::Surplus { name: named("head.bias"), shape: vec![2] }]);
}

#[test]
fn variables_outside_the_map_are_shown() {
    let model = TwoLayers::new(DType::F64);
    let lost = add(&VarMap::new(), "scale", &[4], DType::F64);
    let loss = model.loss(|hidden| hidden.broadcast_mul(&lost)).unwrap();
    let found = faults(audit(&loss, &model.varmap).check());
    let [Finding::NotInMap { node }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((node.shape.as_slice(), node.dtype, &node.name), ([4].as_slice(), DType::F64, &None));
}

#[test]
fn operations_without_backward_are_found_by_what_they_cut_off() {
    let model = TwoLayers::new(DType::F32);
    let gain = add(&model.varmap, "norm.weight", &[4], DType::F32);
    let norm = RmsNorm::new(gain, 1e-5);
    let cut = ["encoder.bias", "encoder.weight", "norm.weight"];
    let loss = model.loss(|hidden| norm.forward(hidden)).unwrap();
    assert_eq!(faults(audit(&loss, &model.varmap).check()), not_reached(&cut));
    assert_trains!(model.loss(|hidden| norm.forward_diff(hidden)).unwrap(), model.varmap);

    let loss = model.loss(|hidden| ops::softmax_last_dim(&norm.forward_diff(hidden)?)).unwrap();
    assert_eq!(faults(audit(&loss, &model.varmap).check()), not_reached(&cut));
    assert_trains!(model.loss(|hidden| ops::softmax(&norm.forward_diff(hidden)?, 1)).unwrap(), model.varmap);
}

#[test]
fn a_round_trip_through_f32_is_shown() {
    let model = TwoLayers::new(DType::F64);
    let loss = model.loss(|hidden| hidden.to_dtype(DType::F32)?.to_dtype(DType::F64)).unwrap();
    let found = faults(audit(&loss, &model.varmap).check());
    let [Finding::OtherDType { node, expected: DType::F64 }] = found.as_slice() else { panic!("{found:?}") };
    let Node { shape, dtype, name, .. } = node.clone();
    assert_eq!((shape, dtype, name), (vec![5, 4], DType::F32, None));
    assert!(1 < node.position && node.position < node.total, "{node}");
}

#[test]
fn a_variable_of_another_type_is_named() {
    let model = TwoLayers::new(DType::F64);
    let odd = add(&model.varmap, "odd", &[4], DType::F32);
    let loss = model.loss(|hidden| hidden.broadcast_mul(&odd.to_dtype(DType::F64)?)).unwrap();
    let found = faults(audit(&loss, &model.varmap).check());
    assert_eq!(found[0].name(), Some("odd"));
    let all = faults(audit(&loss, &model.varmap).dtype(DType::F32).check());
    assert!(all.len() > 10 && all.iter().all(|finding| matches!(finding, Finding::OtherDType { .. })), "{all:?}");
}

#[test]
fn integer_nodes_are_of_no_other_type() {
    let varmap = VarMap::new();
    let table = add(&varmap, "table", &[4, 3], DType::F64);
    let ids = Tensor::new(&[0_u32, 3, 1, 2], &CPU).unwrap();
    let picked = table.index_select(&ids, 0).unwrap();
    let mask = picked.gt(0.0).unwrap();
    let loss = mask.where_cond(&picked, &picked.affine(0.1, 0.0).unwrap()).unwrap().sum_all().unwrap();
    assert_trains!(loss, varmap, dtype(DType::F64));
}

#[test]
fn a_gradient_that_an_operation_leaves_out_is_missing() {
    let varmap = VarMap::new();
    let w = add(&varmap, "w", &[3], DType::F64);
    let loss = w.apply_op1(Passing { factor: None, through_f32: false }).unwrap().sum_all().unwrap();
    assert_eq!(faults(audit(&loss, &varmap).check()), [Finding::MissingGradient { name: named("w") }]);
    audit(&loss, &varmap).without_backward().check().unwrap();
    // Behind another node Candle panics instead.
    let loss = w.sqr().unwrap().apply_op1(Passing { factor: None, through_f32: false }).unwrap().sum_all().unwrap();
    let found = faults(audit(&loss, &varmap).check());
    assert!(
        matches!(&found[..], [Finding::BackwardFailed { message }] if message.contains("grad not populated")),
        "{found:?}"
    );
}

#[test]
fn zero_gradients_are_named_unless_allowed() {
    let mut model = TwoLayers::new(DType::F64);
    model.x = model.x.zeros_like().unwrap();
    let loss = model.loss(|hidden| Ok(hidden.clone())).unwrap();
    let zero = Finding::ZeroGradient { name: named("encoder.weight") };
    assert_eq!(faults(audit(&loss, &model.varmap).check()), [zero]);
    assert_trains!(loss, model.varmap, allowing_zero(["encoder.*"]));
    let error = audit(&loss, &model.varmap).allowing_zero(["encodr"]).check().unwrap_err();
    assert!(matches!(error, Error::NoSuchVariable { pattern, .. } if pattern == "encodr"));
}

#[test]
fn gradients_that_are_handed_in_are_judged() {
    let varmap = VarMap::new();
    let vars: Vec<_> = ["a", "b", "c", "d"].map(|name| add(&varmap, name, &[3], DType::F64)).to_vec();
    let loss = Tensor::cat(&vars, 0).unwrap().sum_all().unwrap();
    let mut grads = GradStore::default();
    grads.insert(&vars[0], Tensor::new(&[0.0, f64::NAN, f64::INFINITY], &CPU).unwrap());
    grads.insert(&vars[1], noise(1, &[3, 1], DType::F64));
    grads.insert(&vars[2], noise(1, &[3], DType::F32));
    let found = faults(audit(&loss, &varmap).gradients(&grads).check());
    let expected = [
        Finding::NonFiniteGradient { name: named("a"), count: 2, total: 3 },
        Finding::GradientShape { name: named("b"), expected: vec![3], got: vec![3, 1] },
        Finding::GradientDType { name: named("c"), expected: DType::F64, got: DType::F32 },
        Finding::MissingGradient { name: named("d") },
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_message_has_a_line_for_each_kind_of_fault() {
    let model = TwoLayers::new(DType::F64);
    let loss = model.loss(|hidden| Ok(hidden.detach())).unwrap();
    let text = audit(&loss, &model.varmap).expecting([("gate", [2])]).check().unwrap_err().to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "7 faults found, 4 looked at");
    assert!(lines[1].ends_with("(a plain tensor, or another name): gate (2,)"), "{text}");
    assert!(lines[3].ends_with("or unused): encoder.bias, encoder.weight"), "{text}");
    assert_eq!(lines.len(), 4);
}

#[test]
#[should_panic(expected = "unused): a")]
fn the_assertion_panics_with_the_name() {
    let a = Var::new(1.0, &CPU).unwrap();
    let b = Var::new(1.0, &CPU).unwrap();
    let variables = candle_audit::Variables::from([("a", a), ("b", b.clone())]);
    assert_trains!(b.sqr().unwrap(), variables);
}
