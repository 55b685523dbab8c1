//! Training a Mamba-2 inside a hand-written Candle model, with every parameter in the caller's `VarMap`.
//!
//! The task: say what the first of eight numbers was, after the last one. `cargo run --release --example train`

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Linear, Module, Optimizer, VarBuilder, VarMap};
use mamba2::gradients::collect;
use mamba2::optim::{AdamW, AdamWConfig};
use mamba2::params::{Init, ParamSpec};
use mamba2::{Mamba2, Mamba2Config, Parameters, loss};
use rand::{RngExt, SeedableRng};

struct Recall {
    encoder: Linear,
    mixer: Mamba2,
    head: Linear,
}

impl Recall {
    fn new(config: &Mamba2Config, vb: VarBuilder) -> Result<Self> {
        // Candle's own layers start from numbers that can't be seeded.
        let linear = |name: &str, from: usize, to: usize| -> Result<Linear> {
            let weight = ParamSpec::new("weight", [to, from], Init::kaiming(from)).get(&vb.pp(name), 0)?;
            let bias = ParamSpec::new("bias", [to], Init::kaiming(from)).get(&vb.pp(name), 0)?;
            Ok(Linear::new(weight, Some(bias)))
        };
        let width = config.d_model;
        Ok(Self {
            encoder: linear("encoder", 1, width)?,
            mixer: Mamba2::new(config, vb.pp("mixer"))?,
            head: linear("head", width, 1)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let r = self.encoder.forward(x)?;
        let (y, _state) = self.mixer.forward(&r, None)?; // (batch, seqlen, d_model)
        let last = (r + y)?.narrow(1, x.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
        self.head.forward(&last) // (batch, 1)
    }
}

/// Trains, and gives the last loss.
pub fn train() -> Result<f64> {
    let (varmap, device) = (VarMap::new(), Device::Cpu);
    let config = Mamba2Config { d_state: 16, headdim: 8, ..Mamba2Config::new(16) };
    let model = Recall::new(&config, VarBuilder::from_varmap(&varmap, DType::F32, &device))?;
    // A parameter that is in no map would be no error to Candle: hold the map against the names that must be in it.
    let mixer: Vec<_> = config.parameters()?.into_iter().map(|spec| spec.below("mixer")).collect();
    Parameters::new(varmap.clone(), &mixer)?;

    let parameters = Parameters::all(varmap.clone());
    let mut optimizer = AdamW::from_varmap(&varmap, AdamWConfig { lr: 1e-2, ..AdamWConfig::default() })?;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
    let mut last = f64::NAN;
    for step in 0..=300 {
        let numbers: Vec<f32> = (0..32 * 8).map(|_| rng.random_range(-1.0..1.0)).collect();
        let x = Tensor::from_vec(numbers, (32, 8, 1), &device)?;
        let first = x.narrow(1, 0, 1)?.squeeze(1)?;
        let loss = loss::mse(&model.forward(&x)?, &first)?;
        let grads = loss.backward()?;
        collect(parameters.iter(), &grads)?; // an error that names every parameter without a gradient
        optimizer.step(&grads)?;
        last = loss.to_scalar()?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {last:.5}");
        }
    }
    Ok(last)
}

fn main() -> Result<()> {
    train().map(|_| ())
}
