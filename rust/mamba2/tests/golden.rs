//! The golden cases: outputs, states and every gradient equal a plain recurrence in fp64.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use candle_core::{DType, Device, Var};
use common::{Golden, golden};
use indexmap::IndexMap;
use mamba2::composed::ssd;
use mamba2::{Architecture, Kernels, Model};

const DTYPES: [DType; 2] = [DType::F64, DType::F32];

#[test]
fn all_cases_are_there() {
    assert_eq!((golden("block").len(), golden("ssd").len()), (38, 9));
}

#[test]
fn mixers_equal_the_plain_recurrence() {
    for case in golden("block") {
        for dtype in DTYPES {
            check_mixer(&case, dtype, Kernels::Fused, 256);
            for chunk_size in [1, 7, 64, 256] {
                check_mixer(&case, dtype, Kernels::Composed, chunk_size);
            }
        }
    }
}

fn check_mixer(case: &Golden, dtype: DType, kernels: Kernels, chunk_size: usize) {
    let config = mamba2::Mamba2Config { chunk_size, ..case.mixer() };
    let mut model = Model::with_kernels(&Architecture::Mixer(config), dtype, &Device::Cpu, 0, kernels).unwrap();
    let parameters: IndexMap<_, _> = case.below("param.", dtype).collect();
    model.parameters_mut().set(&parameters, true, false).unwrap();

    let initial = case.state("init", dtype).map(|state| vec![state]);
    let output = model.forward(&case.tensor("u", dtype), initial.as_deref()).unwrap();
    case.assert_close("out", output.y());
    case.assert_close("final.conv_state", &output.states()[0].conv);
    case.assert_close("final.ssm_state", &output.states()[0].ssm);

    let upstream = case.state("up.final", dtype).map(|state| vec![state]);
    let grads = output.backward(&model, &case.tensor("up.out", dtype), upstream.as_deref()).unwrap();
    assert_eq!(grads.iter().len(), parameters.len());
    for (name, grad) in grads.iter() {
        case.assert_close(&format!("grad.param.{name}"), grad);
    }
    case.assert_close("grad.u", &grads.input);
    assert_eq!(grads.states.is_some(), initial.is_some());
    if let Some(states) = grads.states {
        case.assert_close("grad.init.conv_state", &states[0].conv);
        case.assert_close("grad.init.ssm_state", &states[0].ssm);
    }
}

#[test]
fn scans_equal_the_plain_recurrence() {
    for case in golden("ssd") {
        for dtype in DTYPES {
            for chunk_size in [1, 7, 64, 256] {
                check_scan(&case, dtype, chunk_size);
            }
        }
    }
}

fn check_scan(case: &Golden, dtype: DType, chunk_size: usize) {
    let var = |name: &str| case.get(name, dtype).map(|tensor| Var::from_tensor(&tensor).unwrap());
    let need = |name: &str| var(name).unwrap();
    let (x, dt, a, b, c, d) = (need("x"), need("dt"), need("A"), need("B"), need("C"), var("D"));
    let want = case.tensor("final", dtype);
    let initial = var("init").unwrap_or_else(|| Var::from_tensor(&want.zeros_like().unwrap()).unwrap());
    let skip = d.as_ref().map(Var::as_tensor);
    let (y, last) = ssd(&x, &dt, &a, &b, &c, skip, &initial, chunk_size).unwrap();
    case.assert_close("y", &y);
    case.assert_close("final", &last);

    let mut total = y.mul(&case.tensor("up.y", dtype)).unwrap().sum_all().unwrap();
    if let Some(upstream) = case.get("up.final", dtype) {
        total = (total + last.mul(&upstream).unwrap().sum_all().unwrap()).unwrap();
    }
    let grads = total.backward().unwrap();
    let named = [
        ("x", Some(&x)),
        ("dt", Some(&dt)),
        ("A", Some(&a)),
        ("B", Some(&b)),
        ("C", Some(&c)),
        ("D", d.as_ref()),
        ("init", Some(&initial)),
    ];
    let mut compared = 0;
    for (name, var) in named {
        let (Some(var), name) = (var, format!("grad.{name}")) else { continue };
        if case.get(&name, dtype).is_some() {
            case.assert_close(&name, grads.get(var).unwrap());
            compared += 1;
        }
    }
    let wanted = case.below("grad.", DType::F64).count();
    assert_eq!(compared, wanted, "{}: gradients without a counterpart", case.name);
}

#[test]
#[should_panic(expected = "ssd_g1_L65: y is off by")]
fn a_comparison_fails_where_a_tensor_is_off() {
    let case = golden("ssd").into_iter().find(|case| case.name == "ssd_g1_L65").unwrap();
    case.assert_close("y", &(case.tensor("y", DType::F64) * (1.0 + 1e-12)).unwrap());
}
