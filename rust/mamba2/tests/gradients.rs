//! Gradients against finite differences for every option; the graph's element types and depth; what is refused.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_audit::{Finding, Variables, audit, probes};
use candle_core::{DType, Device, Tensor, Var};
use common::{KERNELS, noise, relative_error, tolerance, values};
use indexmap::IndexMap;
use mamba2::{Architecture, Error, Kernels, Mamba2Config, Mamba2ForecasterConfig, Model, State};

const CPU: Device = Device::Cpu;

/// One configuration for each option of a mixer.
fn options() -> Vec<(&'static str, Mamba2Config)> {
    let base = || Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    vec![
        ("plain", base()),
        ("groups", Mamba2Config { ngroups: 2, ..base() }),
        ("one norm", Mamba2Config { ngroups: 2, norm_groups: Some(1), ..base() }),
        ("D per channel", Mamba2Config { d_has_hdim: true, ..base() }),
        ("no norm", Mamba2Config { rmsnorm: false, ..base() }),
        ("norm before gate", Mamba2Config { norm_before_gate: true, ..base() }),
        ("gated MLP", Mamba2Config { d_ssm: Some(8), ..base() }),
        ("clamped step", Mamba2Config { dt_limit: (0.01, 0.05), ..base() }),
        ("biases", Mamba2Config { bias: true, ..base() }),
        ("no conv bias", Mamba2Config { conv_bias: false, ..base() }),
        ("one tap", Mamba2Config { d_conv: 1, ..base() }),
        ("two taps", Mamba2Config { d_conv: 2, ..base() }),
        ("odd sizes", Mamba2Config { headdim: 1, d_state: 1, chunk_size: 3, ..base() }),
    ]
}

fn mixer(config: &Mamba2Config, kernels: Kernels, seed: u64) -> Model {
    Model::with_kernels(&Architecture::Mixer(config.clone()), DType::F64, &CPU, seed, kernels).unwrap()
}

/// Every option on both forms of the mixer.
fn options_and_kernels() -> impl Iterator<Item = (String, Mamba2Config, Kernels)> {
    let both = |(what, config): (&str, Mamba2Config)| {
        let what = what.to_owned();
        KERNELS.map(move |kernels| (format!("{what}, {kernels:?}"), config.clone(), kernels))
    };
    options().into_iter().flat_map(both)
}

fn noisy_state(model: &Model, batch: usize) -> Vec<State> {
    let like = |seed: u64, tensor: &Tensor| noise(seed, tensor.dims(), DType::F64);
    let states = model.zero_states(batch).unwrap();
    states.iter().map(|state| State { conv: like(11, &state.conv), ssm: like(12, &state.ssm) }).collect()
}

/// Σ y·dy + Σ states·dstates of a forward pass without a graph.
fn objective(model: &Model, x: &Tensor, states: &[State], dy: &Tensor, dstates: &[State]) -> f64 {
    let dot = |a: &Tensor, b: &Tensor| -> f64 { values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum() };
    let (y, after) = model.infer(x, Some(states)).unwrap();
    let of_states = after.iter().zip(dstates).map(|(s, d)| dot(&s.conv, &d.conv) + dot(&s.ssm, &d.ssm));
    dot(&y, dy) + of_states.sum::<f64>()
}

/// Moves along one direction through all parameters, the input and the states at once, and compares the slope by
/// central differences of fourth order with the gradients' own.
fn check_direction(what: &str, model: &mut Model, x: &Tensor, dy: &Tensor, direction: u64) {
    let (states, batch) = (noisy_state(model, x.dim(0).unwrap()), x.dim(0).unwrap());
    let dstates: Vec<_> =
        noisy_state(model, batch).iter().map(|s| State { conv: s.conv.neg().unwrap(), ssm: s.ssm.clone() }).collect();
    let output = model.forward(x, Some(&states)).unwrap();
    let grads = output.backward(model, dy, Some(&dstates)).unwrap();

    let start: IndexMap<String, Tensor> =
        model.parameters().iter().map(|(name, var)| (name.to_owned(), var.copy().unwrap())).collect();
    let along = |name: &str, like: &Tensor| {
        let seed = direction * 1000 + name.bytes().map(u64::from).sum::<u64>();
        noise(seed, like.dims(), DType::F64)
    };
    let dot = |a: &Tensor, b: &Tensor| -> f64 { values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum() };
    let mut slope = dot(&grads.input, &along("input", x));
    slope += start.iter().map(|(name, at)| dot(grads.get(name).unwrap(), &along(name, at))).sum::<f64>();
    for (state, grad) in states.iter().zip(grads.states.as_ref().unwrap()) {
        slope += dot(&grad.conv, &along("conv", &state.conv)) + dot(&grad.ssm, &along("ssm", &state.ssm));
    }

    let shifted = |at: &Tensor, name: &str, h: f64| (at + (along(name, at) * h).unwrap()).unwrap();
    let mut value = |h: f64| {
        let moved = start.iter().map(|(name, at)| (name.clone(), shifted(at, name, h))).collect();
        model.parameters_mut().set(&moved, true, false).unwrap();
        let moved = states.iter();
        let moved: Vec<_> =
            moved.map(|s| State { conv: shifted(&s.conv, "conv", h), ssm: shifted(&s.ssm, "ssm", h) }).collect();
        objective(model, &shifted(x, "input", h), &moved, dy, &dstates)
    };
    let h = 2e-4;
    let measured = (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h);
    value(0.0);
    let error = (measured - slope).abs() / slope.abs();
    let bound = tolerance("finite difference", DType::F64, 0.0);
    assert!(error <= bound, "{what}: slope {slope:e}, by finite differences {measured:e}, off by {error:e}");
}

#[test]
fn mixers_agree_with_finite_differences_in_every_option() {
    for (what, config, kernels) in options_and_kernels() {
        let mut model = mixer(&config, kernels, 5);
        let (x, dy) = (noise(1, &[2, 7, 8], DType::F64), noise(2, &[2, 7, 8], DType::F64));
        for direction in 0..3 {
            check_direction(&what, &mut model, &x, &dy, direction);
        }
    }
}

#[test]
fn forecasters_agree_with_finite_differences() {
    let mixer = Mamba2Config { d_state: 3, headdim: 4, ngroups: 2, ..Mamba2Config::new(8) };
    let config = Mamba2ForecasterConfig { mixer, n_layer: 2, d_input: 3, d_output: 2 };
    let mut model = Model::new(&Architecture::Forecaster(config), DType::F64, &CPU, 5).unwrap();
    for direction in 0..3 {
        let (x, dy) = (noise(1, &[2, 7, 3], DType::F64), noise(2, &[2, 2], DType::F64));
        check_direction("forecaster", &mut model, &x, &dy, direction);
    }
}

#[test]
fn every_node_of_the_graph_is_f64() {
    for (what, config, kernels) in options_and_kernels() {
        let model = mixer(&config, kernels, 0);
        let states = noisy_state(&model, 2);
        let output = model.forward(&noise(1, &[2, 70, 8], DType::F64), Some(&states)).unwrap();
        let loss = output.mse_loss(&noise(2, &[2, 70, 8], DType::F64)).unwrap();
        let after = &output.states()[0];
        for objective in [&loss, output.y(), &after.conv, &after.ssm] {
            let report = audit(objective, model.parameters().varmap()).without_backward().report().unwrap();
            let odd = report.findings().iter().find(|finding| matches!(finding, Finding::OtherDType { .. }));
            assert_eq!(odd, None, "{what}");
        }
        assert!(loss.sorted_nodes().len() > 12, "{what}: the walk saw no graph");
    }
}

#[test]
fn setting_any_parameter_changes_the_output() {
    for (what, config, kernels) in options_and_kernels() {
        let model = mixer(&Mamba2Config { dt_limit: (0.0, f64::INFINITY), ..config }, kernels, 0);
        let vars = Variables::from(model.parameters().varmap());
        let x = noise(1, &[2, 9, 8], DType::F64);
        let graph = || Ok(model.forward(&x, None)?.y().clone());
        let no_graph = || Ok(model.infer(&x, None)?.0);
        probes::staleness(graph, &vars, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
        probes::staleness(no_graph, &vars, &[]).unwrap_or_else(|error| panic!("{what}, inference: {error}"));
    }
}

#[test]
fn inference_records_no_graph_and_equals_forward() {
    let model = mixer(&options()[0].1, Kernels::Auto, 0);
    let x = noise(1, &[2, 40, 8], DType::F64);
    let (y, states) = model.infer(&x, None).unwrap();
    let output = model.forward(&x, None).unwrap();
    assert!(!y.track_op() && !states[0].ssm.track_op() && !states[0].conv.track_op());
    assert!(output.y().track_op());
    assert_eq!(values(&y), values(output.y()));
}

#[test]
fn an_input_that_is_no_contiguous_tensor_gives_the_same() {
    let model = mixer(&options()[0].1, Kernels::Auto, 0);
    let x = noise(1, &[8, 40, 2], DType::F64).transpose(0, 2).unwrap();
    let plain = x.contiguous().unwrap();
    assert!(!x.is_contiguous());
    assert_eq!(values(&model.infer(&x, None).unwrap().0), values(&model.infer(&plain, None).unwrap().0));
}

#[test]
fn chunk_by_chunk_and_step_by_step_equal_the_whole() {
    for (what, config, kernels) in options_and_kernels() {
        let model = mixer(&config, kernels, 3);
        let x = noise(1, &[2, 23, 8], DType::F64);
        let initial = noisy_state(&model, 2);
        let (whole, last) = model.infer(&x, Some(&initial)).unwrap();
        let close = |name: &str, got: &Tensor, want: &Tensor| {
            let error = relative_error(got, want);
            assert!(error <= tolerance("state", DType::F64, 0.0), "{what}: {name} is off by {error:e}");
        };
        let (mut parts, mut states, mut at) = (Vec::new(), initial.clone(), 0);
        for length in [0, 1, 5, 2, 15] {
            let (y, after) = model.infer(&x.narrow(1, at, length).unwrap(), Some(&states)).unwrap();
            (states, at) = (after, at + length);
            if length > 0 {
                parts.push(y);
            }
        }
        close("y by parts", &Tensor::cat(&parts, 1).unwrap(), &whole);
        close("the state by parts", &states[0].ssm, &last[0].ssm);

        let (mut tokens, mut states) = (Vec::new(), initial);
        for t in 0..23 {
            let x_t = x.narrow(1, t, 1).unwrap().squeeze(1).unwrap();
            let (y, after) = model.step(&x_t, &states).unwrap();
            states = after;
            tokens.push(y);
        }
        close("y by steps", &Tensor::stack(&tokens, 1).unwrap(), &whole);
        close("the state by steps", &states[0].ssm, &last[0].ssm);
        close("the history by steps", &states[0].conv, &last[0].conv);
    }
}

#[test]
fn long_sequences_keep_the_graph_shallow() {
    // A loop over blocks would nest 100,000 / 256 or 20,000 levels deep, and Candle recurses through them.
    let cases = [(100_000, 256, Kernels::Composed), (20_000, 1, Kernels::Composed), (100_000, 256, Kernels::Fused)];
    for (seqlen, chunk_size, kernels) in cases {
        let config = Mamba2Config { d_state: 2, headdim: 2, expand: 1, chunk_size, ..Mamba2Config::new(2) };
        let model = Model::with_kernels(&Architecture::Mixer(config), DType::F32, &CPU, 0, kernels).unwrap();
        let x = noise(1, &[1, seqlen, 2], DType::F32);
        let output = model.forward(&x, None).unwrap();
        assert!(output.y().sorted_nodes().len() < 300);
        let grads = output.backward(&model, &x, None).unwrap();
        assert!(values(&grads.input).iter().all(|g| g.is_finite()));
    }
}

#[test]
fn nothing_in_nothing_out() {
    let model = mixer(&options()[0].1, Kernels::Auto, 0);
    let states = noisy_state(&model, 2);
    let x = Tensor::zeros((2, 0, 8), DType::F64, &CPU).unwrap();
    let output = model.forward(&x, Some(&states)).unwrap();
    assert_eq!(output.y().dims(), [2, 0, 8]);
    assert_eq!(values(&output.states()[0].ssm), values(&states[0].ssm));
    let grads = output.backward(&model, &x, Some(&states)).unwrap();
    assert!(grads.iter().all(|(_, grad)| values(grad).iter().all(|g| *g == 0.0)));
    assert_eq!(values(&grads.states.unwrap()[0].conv), values(&states[0].conv));
}

#[test]
fn a_change_between_forward_and_backward_is_refused() {
    let mut model = mixer(&options()[0].1, Kernels::Auto, 0);
    let x = noise(1, &[1, 4, 8], DType::F64);
    let output = model.forward(&x, None).unwrap();
    model.parameters_mut();
    let error = output.backward(&model, &x, None).unwrap_err();
    assert!(matches!(&error, Error::Graph(message) if message.contains("have changed")), "{error}");
}

#[test]
fn threads_change_nothing() {
    let run = |threads: usize, batch: usize, seqlen: usize, kernels: Kernels| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let config = Mamba2Config { d_state: 16, headdim: 16, ..Mamba2Config::new(64) };
            let model = Model::with_kernels(&Architecture::Mixer(config), DType::F32, &CPU, 0, kernels).unwrap();
            let x = noise(1, &[batch, seqlen, 64], DType::F32);
            let grads = model.forward(&x, None).unwrap().backward(&model, &x, None).unwrap();
            let all = grads.iter().flat_map(|(_, grad)| values(grad)).chain(values(&grads.input));
            all.map(f64::to_bits).collect::<Vec<_>>()
        })
    };
    for (batch, seqlen) in [(2, 130), (1, 600), (70, 20)] {
        for kernels in KERNELS {
            let one = run(1, batch, seqlen, kernels);
            let more = [2, 3].map(|threads| run(threads, batch, seqlen, kernels));
            assert!(more.iter().all(|more| *more == one), "batch {batch}, seqlen {seqlen}, {kernels:?}");
        }
    }
}

#[test]
fn softplus_keeps_the_digits_of_its_slope() {
    // The slope is exp(x)/(1 + exp(x)): exp(x) itself, where that is small.
    for (dtype, xs) in [(DType::F64, [-700.0, -709.5, -740.0]), (DType::F32, [-80.0, -88.5, -95.0])] {
        let x = Var::from_tensor(&Tensor::new(&xs, &CPU).unwrap().to_dtype(dtype).unwrap()).unwrap();
        let grads = mamba2::ops::softplus(&x).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(values(grads.get(&x).unwrap()), values(&x.exp().unwrap()));
    }
}

#[test]
fn a_decay_that_overflows_is_zero() {
    let config = options()[0].1.clone();
    for (dtype, a_log) in [(DType::F32, 100.0), (DType::F64, 720.0)] {
        let mut model = Model::new(&Architecture::Mixer(config.clone()), dtype, &CPU, 0).unwrap();
        let x = noise(1, &[1, 40, 8], dtype);
        let mut set = |a_log: f64| {
            let value = Tensor::full(a_log, 4, &CPU).unwrap().to_dtype(dtype).unwrap();
            let value = IndexMap::from([("A_log".to_owned(), value)]);
            model.parameters_mut().set(&value, false, false).unwrap();
            values(&model.infer(&x, None).unwrap().0)
        };
        // A state forgotten at once is forgotten at once.
        let (overflowing, large) = (set(a_log), set(30.0));
        assert!(overflowing.iter().all(|y| y.is_finite()));
        assert_eq!(overflowing, large);
    }
}
