//! The fused kernels against the composed form, where blocks begin and end, and alone: graphs that ask for less, repeated backwards.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use common::{KERNELS, noise, relative_error, tolerance, values};
use mamba2::{Architecture, Kernels, Mamba2, Mamba2Config, Mamba2ForecasterConfig, Model, State};

const CPU: Device = Device::Cpu;

fn config() -> Mamba2Config {
    Mamba2Config { d_state: 5, headdim: 4, ngroups: 2, ..Mamba2Config::new(8) }
}

fn states_like(states: &[State], seed: u64, dtype: DType) -> Vec<State> {
    let like = |seed: u64, tensor: &Tensor| noise(seed, tensor.dims(), dtype);
    states.iter().map(|state| State { conv: like(seed, &state.conv), ssm: like(seed + 1, &state.ssm) }).collect()
}

/// Every result of a forward and a backward pass, by name.
fn run(architecture: &Architecture, kernels: Kernels, x: &Tensor, with_states: bool) -> Vec<(String, Tensor)> {
    let dtype = x.dtype();
    let model = Model::with_kernels(architecture, dtype, &CPU, 3, kernels).unwrap();
    let zeros = model.zero_states(x.dim(0).unwrap()).unwrap();
    let initial = with_states.then(|| states_like(&zeros, 20, dtype));
    let output = model.forward(x, initial.as_deref()).unwrap();
    let mut results = vec![("y".to_owned(), output.y().detach())];
    let named = |prefix: &str, states: &[State]| {
        let parts = |(at, state): (usize, &State)| {
            [(format!("{prefix}[{at}].conv"), state.conv.detach()), (format!("{prefix}[{at}].ssm"), state.ssm.detach())]
        };
        states.iter().enumerate().flat_map(parts).collect::<Vec<_>>()
    };
    results.extend(named("states", output.states()));
    let dy = noise(30, output.y().dims(), dtype);
    let upstream = with_states.then(|| states_like(&zeros, 40, dtype));
    let grads = output.backward(&model, &dy, upstream.as_deref()).unwrap();
    results.extend(grads.iter().map(|(name, grad)| (name.to_owned(), grad.clone())));
    results.push(("x".to_owned(), grads.input.clone()));
    results.extend(named("initial", grads.states.as_deref().unwrap_or_default()));
    results
}

fn assert_both_agree(what: &str, architecture: &Architecture, x: &Tensor, with_states: bool) {
    let [fused, composed] = KERNELS.map(|kernels| run(architecture, kernels, x, with_states));
    assert_eq!(fused.len(), composed.len());
    for ((name, got), (_, want)) in fused.iter().zip(&composed) {
        let error = if want.elem_count() == 0 { 0.0 } else { relative_error(got, want) };
        assert!(error <= tolerance("grad", DType::F64, 0.0), "{what}: {name} is off by {error:e}");
    }
}

#[test]
fn they_equal_the_composed_form_wherever_blocks_end() {
    for seqlen in [1, 2, 3, 4, 15, 63, 64, 65, 127, 129, 255, 256, 257, 260, 321, 520] {
        for with_states in [false, true] {
            let x = noise(1, &[1, seqlen, 8], DType::F64);
            assert_both_agree(&format!("seqlen {seqlen}"), &Architecture::Mixer(config()), &x, with_states);
        }
    }
}

#[test]
fn they_equal_the_composed_form_for_any_number_of_sequences() {
    for batch in [2, 7, 8, 9, 33, 70] {
        let x = noise(1, &[batch, 20, 8], DType::F64);
        assert_both_agree(&format!("batch {batch}"), &Architecture::Mixer(config()), &x, true);
    }
}

#[test]
fn they_equal_the_composed_form_for_sizes_that_are_no_multiples_of_a_vector() {
    for (headdim, d_state, d_conv, ngroups) in
        [(1, 1, 1, 1), (3, 7, 2, 2), (5, 17, 3, 2), (9, 33, 5, 1), (18, 2, 70, 1), (2, 40, 4, 9)]
    {
        let config =
            Mamba2Config { headdim, d_state, d_conv, ngroups, expand: 1, ..Mamba2Config::new(headdim * ngroups * 2) };
        let x = noise(1, &[2, 90, config.d_model], DType::F64);
        let what = format!("headdim {headdim}, d_state {d_state}, d_conv {d_conv}, ngroups {ngroups}");
        assert_both_agree(&what, &Architecture::Mixer(config), &x, true);
    }
}

#[test]
fn forecasters_agree() {
    let config = Mamba2ForecasterConfig { mixer: config(), n_layer: 3, d_input: 3, d_output: 2 };
    assert_both_agree("forecaster", &Architecture::Forecaster(config), &noise(1, &[3, 70, 3], DType::F64), true);
}

#[test]
fn a_sequence_gives_the_same_bits_whatever_stands_beside_it() {
    let model = Model::new(&Architecture::Mixer(config()), DType::F32, &CPU, 0).unwrap();
    let x = noise(1, &[12, 300, 8], DType::F32);
    let (together, _) = model.infer(&x, None).unwrap();
    for at in [0, 11] {
        let (alone, _) = model.infer(&x.narrow(0, at, 1).unwrap(), None).unwrap();
        assert_eq!(values(&together.narrow(0, at, 1).unwrap()), values(&alone));
    }
}

fn mixer_on_variables() -> (VarMap, Mamba2) {
    let varmap = VarMap::new();
    let mixer = Mamba2::new(&config(), VarBuilder::from_varmap(&varmap, DType::F64, &CPU)).unwrap();
    (varmap, mixer)
}

#[test]
fn candles_own_backward_and_a_second_one_give_the_same() {
    let (varmap, mixer) = mixer_on_variables();
    let (y, state) = mixer.forward(&noise(1, &[2, 70, 8], DType::F64), None).unwrap();
    let total = (y.sum_all().unwrap() + state.ssm.sqr().unwrap().sum_all().unwrap()).unwrap();
    let (first, second) = (total.backward().unwrap(), total.backward().unwrap());
    let vars = varmap.all_vars();
    assert_eq!(vars.len(), 8);
    for var in &vars {
        assert_eq!(values(first.get(var).unwrap()), values(second.get(var).unwrap()));
    }
}

#[test]
fn a_loss_of_the_states_alone_has_gradients() {
    let (varmap, mixer) = mixer_on_variables();
    let x = Var::from_tensor(&noise(1, &[1, 70, 8], DType::F64)).unwrap();
    let (_, state) = mixer.forward(&x, None).unwrap();
    let grads = state.ssm.sum_all().unwrap().backward().unwrap();
    let data = varmap.data().lock().unwrap();
    let norm = |name: &str| values(grads.get(&data[name]).unwrap()).iter().map(|g| g * g).sum::<f64>();
    assert!(norm("A_log") > 0.0 && norm("in_proj.weight") > 0.0);
    assert!(norm("out_proj.weight") == 0.0 && norm("D") == 0.0);
}

#[test]
fn a_frozen_mixer_passes_the_gradient_of_its_input_on() {
    let (varmap, _) = mixer_on_variables();
    let tensors =
        varmap.data().lock().unwrap().iter().map(|(name, var)| (name.clone(), var.as_detached_tensor())).collect();
    let frozen = Mamba2::new(&config(), VarBuilder::from_tensors(tensors, DType::F64, &CPU)).unwrap();
    let live = Mamba2::new(&config(), VarBuilder::from_varmap(&varmap, DType::F64, &CPU)).unwrap();
    let x = Var::from_tensor(&noise(1, &[1, 30, 8], DType::F64)).unwrap();
    let gradient = |mixer: &Mamba2| {
        let (y, _) = mixer.forward(&x, None).unwrap();
        values(y.sum_all().unwrap().backward().unwrap().get(&x).unwrap())
    };
    assert_eq!(gradient(&frozen), gradient(&live));
}
