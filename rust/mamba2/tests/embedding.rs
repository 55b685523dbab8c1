//! The modules as parts of other people's Candle models.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Module, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use common::{noise, values};
use mamba2::params::lock;
use mamba2::{Error, Mamba2, Mamba2Config};

const CPU: Device = Device::Cpu;

fn config() -> Mamba2Config {
    Mamba2Config { d_state: 4, headdim: 4, bias: true, ..Mamba2Config::new(8) }
}

#[test]
fn a_mixer_trains_inside_a_candle_model_under_candles_own_optimizer() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    let encoder = candle_nn::linear(3, 8, vb.pp("encoder")).unwrap();
    let mixer = Mamba2::new(&config(), vb.pp("mixer")).unwrap();
    let (x, target) = (noise(1, &[4, 9, 3], DType::F64), noise(2, &[4, 9, 8], DType::F64));
    let loss = || {
        let y = mixer.forward(&encoder.forward(&x).unwrap(), None).unwrap().0;
        mamba2::loss::mse(&y, &target).unwrap()
    };
    let copies = || -> HashMap<String, Vec<f64>> {
        lock(&varmap).iter().map(|(name, var)| (name.clone(), values(var))).collect()
    };
    let (before, at_start) = (copies(), loss().to_scalar::<f64>().unwrap());
    let params = ParamsAdamW { lr: 1e-2, ..ParamsAdamW::default() };
    let mut optimizer = candle_nn::AdamW::new(varmap.all_vars(), params).unwrap();
    for _ in 0..30 {
        optimizer.backward_step(&loss()).unwrap();
    }
    assert!(loss().to_scalar::<f64>().unwrap() < 0.7 * at_start);
    for (name, after) in copies() {
        assert_ne!(before[&name], after, "{name} was not trained");
    }
    assert_eq!(before.len(), 2 + config().parameters().unwrap().len());
}

#[test]
fn values_that_are_in_the_map_are_kept() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    let mine = vb.get_with_hints(4, "A_log", candle_nn::Init::Const(0.25)).unwrap();
    let mixer = Mamba2::new(&config(), vb.clone()).unwrap();
    assert_eq!(values(&mine), [0.25; 4]);

    // A second mixer on the same map is the same function.
    let again = Mamba2::seeded(&config(), vb, 99).unwrap();
    let u = noise(3, &[1, 5, 8], DType::F64);
    assert_eq!(values(&mixer.forward(&u, None).unwrap().0), values(&again.forward(&u, None).unwrap().0));
}

#[test]
fn initial_values_depend_on_seed_and_name_only() {
    let make = |prefix: &str, seed: u64, dtype: DType| {
        let varmap = VarMap::new();
        let vb = VarBuilder::from_varmap(&varmap, dtype, &CPU);
        Mamba2::seeded(&config(), vb.pp(prefix), seed).unwrap();
        let name = format!("{prefix}.in_proj.weight");
        values(&lock(&varmap)[&name])
    };
    let base = make("layers.0", 1, DType::F64);
    assert_eq!(base, make("layers.0", 1, DType::F64));
    assert_ne!(base, make("layers.1", 1, DType::F64));
    assert_ne!(base, make("layers.0", 2, DType::F64));
    let rounded = Tensor::new(base, &CPU).unwrap().to_dtype(DType::F32).unwrap();
    assert_eq!(values(&rounded), make("layers.0", 1, DType::F32));
}

#[test]
fn the_wrong_shape_in_the_map_and_half_precision_are_refused() {
    let varmap = VarMap::new();
    let vb = VarBuilder::from_varmap(&varmap, DType::F64, &CPU);
    vb.get_with_hints(5, "A_log", candle_nn::Init::Const(0.25)).unwrap();
    assert!(Mamba2::new(&config(), vb).unwrap_err().to_string().contains("shape mismatch on A_log"));

    let vb = VarBuilder::from_varmap(&varmap, DType::BF16, &CPU);
    let error = Mamba2::new(&config(), vb).unwrap_err();
    assert!(matches!(&error, Error::DType { got, .. } if got == "bfloat16"), "{error}");
}
