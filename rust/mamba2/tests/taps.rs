//! Intermediates: their names, values and gradients; what is fed in their place; and that recording changes nothing.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use common::{KERNELS, noise, relative_error, tolerance, values};
use mamba2::{
    Architecture, Error, Fed, Feed, Gradients, Kernels, Mamba2, Mamba2Config, Mamba2ForecasterConfig, Model, Output,
    Recording, State,
};

const CPU: Device = Device::Cpu;
const DTYPES: [DType; 2] = [DType::F64, DType::F32];

/// Configurations in which other taps are there, or are made in another way.
fn options() -> Vec<(&'static str, Mamba2Config)> {
    let base = || Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    vec![
        ("plain", base()),
        ("groups", Mamba2Config { ngroups: 2, ..base() }),
        ("D per channel", Mamba2Config { d_has_hdim: true, ..base() }),
        ("no norm", Mamba2Config { rmsnorm: false, ..base() }),
        ("norm before gate", Mamba2Config { norm_before_gate: true, ..base() }),
        ("gated MLP", Mamba2Config { d_ssm: Some(8), bias: true, ..base() }),
        ("clamped step", Mamba2Config { dt_limit: (0.01, 0.05), ..base() }),
        ("one column of convolution", Mamba2Config { d_conv: 1, ..base() }),
    ]
}

/// Every model of these tests, with an input and an upstream gradient.
struct Case {
    what: String,
    model: Model,
    x: Tensor,
    dy: Tensor,
    states: Vec<State>,
    dstates: Vec<State>,
}

impl Case {
    fn new(what: String, architecture: &Architecture, kernels: Kernels, dtype: DType) -> Self {
        let model = Model::with_kernels(architecture, dtype, &CPU, 5, kernels).unwrap();
        let (x, dy) = match architecture {
            Architecture::Mixer(_) => (noise(1, &[2, 19, 8], dtype), noise(2, &[2, 19, 8], dtype)),
            Architecture::Forecaster(_) => (noise(1, &[2, 19, 3], dtype), noise(2, &[2, 2], dtype)),
        };
        let noisy = |seed: u64| {
            let like = |seed: u64, tensor: &Tensor| noise(seed, tensor.dims(), dtype);
            let states = model.zero_states(2).unwrap();
            states.iter().map(|s| State { conv: like(seed, &s.conv), ssm: like(seed + 1, &s.ssm) }).collect::<Vec<_>>()
        };
        let (states, dstates) = (noisy(11), noisy(13));
        Self { what, model, x, dy, states, dstates }
    }

    fn all(kernels: &[Kernels], dtypes: &[DType]) -> Vec<Self> {
        let mut architectures: Vec<_> =
            options().into_iter().map(|(what, config)| (what, Architecture::Mixer(config))).collect();
        let mixer = Mamba2Config { d_ssm: Some(12), ..options().remove(0).1 };
        let forecaster = Mamba2ForecasterConfig { mixer, n_layer: 2, d_input: 3, d_output: 2 };
        architectures.push(("forecaster", Architecture::Forecaster(forecaster)));
        let mut cases = Vec::new();
        for (what, architecture) in &architectures {
            for &kernels in kernels {
                for &dtype in dtypes {
                    let what = format!("{what}, {kernels:?}, {dtype:?}");
                    cases.push(Self::new(what, architecture, kernels, dtype));
                }
            }
        }
        cases
    }

    fn record(&self, feed: Feed) -> (Output, Recording) {
        self.model.record(&self.x, Some(&self.states), feed).unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    fn backward(&self, output: Output) -> Gradients {
        output.backward(&self.model, &self.dy, Some(&self.dstates)).unwrap()
    }

    /// Σ y·dy + Σ states·dstates.
    fn objective(&self, output: &Output) -> f64 {
        let states = output.states().iter().zip(&self.dstates);
        dot(output.y(), &self.dy) + states.map(|(s, d)| dot(&s.conv, &d.conv) + dot(&s.ssm, &d.ssm)).sum::<f64>()
    }
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum()
}

fn names(recording: &Recording) -> Vec<String> {
    recording.values().into_keys().collect()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    values(tensor).into_iter().map(f64::to_bits).collect()
}

/// Everything that a pass gives, by name.
fn results(case: &Case, output: Output) -> Vec<(String, Vec<u64>)> {
    let mut all = vec![("y".to_owned(), bits(output.y()))];
    let mut states = |prefix: &str, states: &[State]| {
        for (layer, state) in states.iter().enumerate() {
            all.push((format!("{prefix}[{layer}].conv"), bits(&state.conv)));
            all.push((format!("{prefix}[{layer}].ssm"), bits(&state.ssm)));
        }
    };
    states("final", output.states());
    let gradients = case.backward(output);
    states("grad.init", gradients.states.as_deref().unwrap());
    all.push(("grad.input".to_owned(), bits(&gradients.input)));
    all.extend(gradients.iter().map(|(name, gradient)| (format!("grad.{name}"), bits(gradient))));
    all
}

#[test]
fn a_mixers_taps_have_their_names_and_shapes_in_forward_order() {
    let config = Mamba2Config { d_ssm: Some(8), d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    let taps = |config: Mamba2Config, kernels: Kernels| -> Vec<_> {
        let case = Case::new("names".into(), &Architecture::Mixer(config), kernels, DType::F32);
        let (output, recording) = case.record(Feed::new());
        drop(output);
        let values = recording.values();
        values.iter().map(|(name, value)| (name.clone(), value.dims()[2], value.dtype())).collect()
    };
    let wanted = |names: &[(&str, usize)]| -> Vec<_> {
        names.iter().map(|(name, width)| ((*name).to_owned(), *width, DType::F32)).collect()
    };
    let mut want = vec![
        ("in_proj.mlp", 16),
        ("in_proj.z", 8),
        ("in_proj.xBC", 14),
        ("in_proj.dt", 2),
        ("conv", 14),
        ("dt", 2),
        ("scan", 8),
        ("norm", 8),
        ("mlp", 8),
        ("out_proj", 8),
    ];
    assert_eq!(taps(config.clone(), Kernels::Composed), wanted(&want));
    assert_eq!(taps(config.clone(), Kernels::Fused), wanted(&[("out_proj", 8)]));
    want.retain(|(name, _)| !name.ends_with("mlp"));
    let without = taps(Mamba2Config { d_ssm: None, ..config }, Kernels::Composed);
    assert_eq!(
        without.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
        want.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
}

#[test]
fn a_forecasters_taps_are_between_its_modules_and_inside_them() {
    let mixer = Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    let config = Mamba2ForecasterConfig { mixer, n_layer: 2, d_input: 3, d_output: 2 };
    let inside = ["in_proj.z", "in_proj.xBC", "in_proj.dt", "conv", "dt", "scan", "norm", "out_proj"];
    for (kernels, inside) in [(Kernels::Composed, &inside[..]), (Kernels::Fused, &inside[7..])] {
        let mut want = vec!["encoder".to_owned()];
        for layer in 0..2 {
            want.push(format!("layers.{layer}.norm"));
            want.extend(inside.iter().map(|name| format!("layers.{layer}.mixer.{name}")));
            want.push(format!("layers.{layer}"));
        }
        want.extend(["norm_f".to_owned(), "head".to_owned()]);
        let case = Case::new("names".into(), &Architecture::Forecaster(config.clone()), kernels, DType::F64);
        let (output, recording) = case.record(Feed::new());
        assert_eq!(names(&recording), want);
        let values = recording.values();
        assert_eq!(values["encoder"].dims(), [2, 19, 8]);
        assert_eq!(values["layers.1"].dims(), [2, 19, 8]);
        assert_eq!(values["norm_f"].dims(), [2, 8]);
        assert_eq!(bits(&values["head"]), bits(output.y()));
        case.backward(output);
        assert_eq!(recording.gradients().into_keys().collect::<Vec<_>>(), want);
    }
}

#[test]
fn recording_changes_no_bit() {
    for case in Case::all(&KERNELS, &DTYPES) {
        let plain = case.model.forward(&case.x, Some(&case.states)).unwrap();
        let (recorded, _) = case.record(Feed::new());
        assert!(results(&case, plain) == results(&case, recorded), "{}", case.what);
    }
}

#[test]
fn what_is_recorded_is_of_the_models_type_and_no_part_of_the_graph() {
    for case in Case::all(&KERNELS, &DTYPES) {
        let (output, recording) = case.record(Feed::new());
        assert!(recording.gradients().is_empty(), "{}: gradients before a backward", case.what);
        case.backward(output);
        let (values, gradients) = (recording.values(), recording.gradients());
        assert!(values.keys().eq(gradients.keys()), "{}", case.what);
        for (name, value) in &values {
            let gradient = &gradients[name];
            assert_eq!((value.dtype(), gradient.dtype()), (case.model.dtype(), case.model.dtype()), "{name}");
            assert_eq!(value.dims(), gradient.dims(), "{name}");
            assert!(!value.track_op() && !gradient.track_op(), "{}: {name} holds a graph", case.what);
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences_at_every_tap() {
    for case in Case::all(&KERNELS, &[DType::F64]) {
        let (output, recording) = case.record(Feed::new());
        case.backward(output);
        let gradients = recording.gradients();
        for (at, (name, value)) in recording.values().into_iter().enumerate() {
            // In proportion to the value: some steps Δ are not much larger than h.
            let along = (noise(100 + u64::try_from(at).unwrap(), value.dims(), DType::F64) * &value).unwrap();
            let slope = dot(&gradients[&name], &along);
            let objective = |h: f64| {
                let moved = (&value + (&along * h).unwrap()).unwrap();
                let feed = Feed::from([(name.clone(), Fed { value: moved, gradient: None })]);
                case.objective(&case.record(feed).0)
            };
            let h = 2e-4;
            let measured =
                (8.0 * (objective(h) - objective(-h)) - (objective(2.0 * h) - objective(-2.0 * h))) / (12.0 * h);
            // Along one direction the slope can be a small difference of large terms.
            let scale = slope.abs().max(dot(&gradients[&name].abs().unwrap(), &along.abs().unwrap()) * 1e-2);
            let error = (measured - slope).abs() / scale;
            let bound = tolerance("finite difference", DType::F64, 0.0);
            assert!(error <= bound, "{}: {name}: slope {slope:e}, measured {measured:e}: {error:e}", case.what);
        }
    }
}

/// All of a recording, to be fed.
fn own(recording: &Recording) -> Feed {
    let gradients = recording.gradients();
    let fed = |(name, value): (String, Tensor)| {
        let gradient = gradients.get(&name).cloned();
        (name, Fed { value, gradient })
    };
    recording.values().into_iter().map(fed).collect()
}

#[test]
fn feeding_a_model_its_own_intermediates_changes_no_bit() {
    for case in Case::all(&KERNELS, &DTYPES) {
        let (first, recording) = case.record(Feed::new());
        let want = results(&case, first);
        let mut feed = own(&recording);
        // These are computed wider than they are recorded.
        let wide =
            |name: &str| name == "scan" || name.ends_with("mixer.scan") || name == "dt" || name.ends_with("mixer.dt");
        feed.retain(|name, _| case.model.dtype() == DType::F64 || !wide(name));
        let (fed, again) = case.record(feed);
        assert!(results(&case, fed) == want, "{}", case.what);
        for (before, after) in [(recording.values(), again.values()), (recording.gradients(), again.gradients())] {
            assert!(before.keys().eq(after.keys()), "{}", case.what);
            for (name, tensor) in &before {
                assert!(bits(tensor) == bits(&after[name]), "{}: {name}", case.what);
            }
        }
    }
}

#[test]
fn an_error_reaches_the_next_fed_tap_and_no_further() {
    for case in Case::all(&[Kernels::Composed], &[DType::F64]) {
        let (output, recording) = case.record(Feed::new());
        case.backward(output);
        let names = names(&recording);
        for wrong in &names {
            let mut feed = own(&recording);
            let Fed { value, gradient } = feed.get_mut(wrong).unwrap();
            *value = (&*value + 1.0).unwrap();
            *gradient = gradient.as_ref().map(|gradient| (gradient + 1.0).unwrap());
            let (output, again) = case.record(feed);
            case.backward(output);
            let same = |a: &Tensor, b: &Tensor| bits(a) == bits(b);
            let (values, gradients) = (again.values(), again.gradients());
            let moved = |name: &&String| !same(&values[*name], &recording.values()[*name]);
            let values_moved: Vec<_> = names.iter().filter(moved).collect();
            let moved = |name: &&String| !same(&gradients[*name], &recording.gradients()[*name]);
            let gradients_moved: Vec<_> = names.iter().filter(moved).collect();
            let at = |name: &String| names.iter().position(|other| other == name).unwrap();
            assert!(values_moved.iter().all(|name| at(name) > at(wrong)), "{}: {wrong}: {values_moved:?}", case.what);
            assert!(!values_moved.contains(&wrong), "{}: {wrong} records what arrives", case.what);
            // One norm goes into the four parts of a projection, and no stage has more inputs or outputs.
            assert!(values_moved.len() <= 4, "{}: {wrong}: {values_moved:?}", case.what);
            assert!(gradients_moved.len() <= 4, "{}: {wrong}: {gradients_moved:?}", case.what);
            let last = at(wrong) + 1 == names.len();
            assert!(last || !values_moved.is_empty() || !gradients_moved.is_empty(), "{}: {wrong}", case.what);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let config = Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    let case = Case::new("refused".into(), &Architecture::Mixer(config), Kernels::Composed, DType::F64);
    let zeros = |shape: &[usize], dtype: DType| Tensor::zeros(shape, dtype, &CPU).unwrap();
    let (right, wrong) = (zeros(&[2, 19, 4], DType::F64), zeros(&[2, 19, 5], DType::F64));
    let refuse = |name: &str, value: &Tensor, gradient: Option<&Tensor>| {
        let fed = Fed { value: value.clone(), gradient: gradient.cloned() };
        let feed = Feed::from([(name.to_owned(), fed)]);
        case.model.record(&case.x, None, feed).map(|_| ()).unwrap_err()
    };
    let error = refuse("dt", &wrong, None);
    assert!(matches!(error, Error::Shape { .. }));
    assert_eq!(error.to_string(), "the value fed to dt must have shape (2, 19, 4), got (2, 19, 5)");
    assert_eq!(
        refuse("dt", &right, Some(&wrong)).to_string(),
        "the gradient fed to dt must have shape (2, 19, 4), got (2, 19, 5)"
    );
    let error = refuse("dt", &right.to_dtype(DType::F32).unwrap(), None);
    assert!(matches!(error, Error::DType { .. }));
    assert_eq!(error.to_string(), "the value fed to dt must be float64, got float32");
    let error = refuse("mlp", &right, None);
    assert!(matches!(error, Error::Config { .. }));
    assert_eq!(
        error.to_string(),
        "feed must be by the names of intermediates (in_proj.z, in_proj.xBC, in_proj.dt, conv, dt, scan, norm, out_proj), \
         got [\"mlp\"]"
    );
    assert!(case.model.forward(&case.x, None).is_ok());
}

#[test]
fn an_empty_input_has_no_intermediates() {
    for kernels in KERNELS {
        let config = Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
        let model = Model::with_kernels(&Architecture::Mixer(config), DType::F64, &CPU, 0, kernels).unwrap();
        let x = Tensor::zeros((2, 0, 8), DType::F64, &CPU).unwrap();
        let (output, recording) = model.record(&x, None, Feed::new()).unwrap();
        output.backward(&model, &x, None).unwrap();
        assert!(recording.values().is_empty() && recording.gradients().is_empty());
        let feed = Feed::from([("out_proj".to_owned(), Fed { value: x.clone(), gradient: None })]);
        assert!(model.record(&x, None, feed).is_err());
    }
}

#[test]
fn a_step_has_the_intermediates_of_its_token() {
    for case in Case::all(&KERNELS, &DTYPES) {
        let x_t = case.x.narrow(1, 0, 1).unwrap();
        let (y, after, recording) =
            case.model.record_step(&x_t.squeeze(1).unwrap(), &case.states, Feed::new()).unwrap();
        let (want, states) = case.model.step(&x_t.squeeze(1).unwrap(), &case.states).unwrap();
        assert!(bits(&y) == bits(&want) && bits(&after[0].ssm) == bits(&states[0].ssm), "{}", case.what);
        let (_, forward) = case.model.record(&x_t, Some(&case.states), Feed::new()).unwrap();
        let (values, of_forward) = (recording.values(), forward.values());
        assert!(values.keys().eq(of_forward.keys()), "{}", case.what);
        for (name, value) in &values {
            let error = relative_error(value, &of_forward[name]); // the fused kernels have a step of their own
            assert!(error <= tolerance("value", value.dtype(), 0.0), "{}: {name} is off by {error:e}", case.what);
        }
        assert!(recording.gradients().is_empty());

        let (name, value) = values.last().unwrap();
        let fed = |gradient| Feed::from([(name.clone(), Fed { value: value.zeros_like().unwrap(), gradient })]);
        let x_t = x_t.squeeze(1).unwrap();
        let (y, ..) = case.model.record_step(&x_t, &case.states, fed(None)).unwrap();
        assert!(values_are_zero(&y), "{}", case.what);
        let refused = case.model.record_step(&x_t, &case.states, fed(Some(value.clone()))).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("a step has no backward"), "{refused}");
    }
}

fn values_are_zero(tensor: &Tensor) -> bool {
    values(tensor).iter().all(|value| *value == 0.0)
}

#[test]
fn a_module_in_anothers_model_has_taps_too_and_what_is_not_reached_has_no_gradient() {
    let config = Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    let varmap = VarMap::new();
    let mixer = Mamba2::new(&config, VarBuilder::from_varmap(&varmap, DType::F64, &CPU)).unwrap();
    let mixer = mixer.with_kernels(Kernels::Composed).unwrap();
    let u = noise(1, &[2, 5, 8], DType::F64);
    let recording = Recording::new(DType::F64, Feed::new());
    let (_, state) = mixer.forward_tapped(&u, None, &recording.taps().within("left")).unwrap();
    mixer.forward_tapped(&u, None, &recording.taps().within("right")).unwrap();
    state.ssm.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let reached: Vec<_> = recording.gradients().into_keys().collect();
    assert_eq!(reached, ["left.in_proj.xBC", "left.in_proj.dt", "left.conv", "left.dt"]);
    assert_eq!(recording.values().len(), 16);
    let error = mixer.forward_tapped(&u, None, &recording.taps().within("left")).unwrap_err();
    assert!(matches!(error, Error::Graph(_)), "{error}");
}

#[test]
fn a_view_into_a_longer_tensor_is_fed_as_it_is() {
    let config = Mamba2Config { d_state: 3, headdim: 4, ..Mamba2Config::new(8) };
    let case = Case::new("view".into(), &Architecture::Mixer(config), Kernels::Fused, DType::F64);
    let whole = noise(3, &[4, 19, 8], DType::F64);
    let fed = |at: usize| Fed { value: whole.narrow(0, at, 2).unwrap(), gradient: None };
    for at in [0, 2] {
        let (output, _) = case.record(Feed::from([("out_proj".to_owned(), fed(at))]));
        assert_eq!(bits(output.y()), bits(&fed(at).value));
    }
}
