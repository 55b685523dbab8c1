//! Training a Mamba-2 inside a hand-written Candle model, with every parameter in the caller's `VarMap`.
//!
//! The task: say what the first of eight numbers was, after the last one. `cargo run --release --example train`

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, Optimizer, VarBuilder, VarMap};
use mamba2::gradients::collect;
use mamba2::optim::{AdamW, AdamWConfig};
use mamba2::{Mamba2, Mamba2Config, Parameters, loss};
use rand::{RngExt, SeedableRng};

struct Recall {
    encoder: candle_nn::Linear,
    mixer: Mamba2,
    head: candle_nn::Linear,
}

impl Recall {
    fn new(config: &Mamba2Config, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            encoder: candle_nn::linear(1, config.d_model, vb.pp("encoder"))?,
            mixer: Mamba2::new(config, vb.pp("mixer"))?,
            head: candle_nn::linear(config.d_model, 1, vb.pp("head"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (y, _state) = self.mixer.forward(&self.encoder.forward(x)?, None)?; // (batch, seqlen, d_model)
        let last = y.narrow(1, y.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
        self.head.forward(&last) // (batch, 1)
    }
}

fn main() -> Result<()> {
    let (varmap, device) = (VarMap::new(), Device::Cpu);
    let config = Mamba2Config { d_state: 16, headdim: 8, ..Mamba2Config::new(16) };
    let model = Recall::new(&config, VarBuilder::from_varmap(&varmap, DType::F32, &device))?;

    // A parameter that is missing from the map would be no error to Candle: hold the map against the names it must have.
    let specs: Vec<_> = config.parameters()?.into_iter().map(|spec| spec.below("mixer")).collect();
    let parameters = Parameters::new(varmap.clone(), &specs)?;

    let mut optimizer = AdamW::from_varmap(&varmap, AdamWConfig { lr: 1e-2, ..AdamWConfig::default() })?;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
    for step in 0..=300 {
        let numbers: Vec<f32> = (0..32 * 8).map(|_| rng.random_range(-1.0..1.0)).collect();
        let x = Tensor::from_vec(numbers, (32, 8, 1), &device)?;
        let first = x.narrow(1, 0, 1)?.squeeze(1)?;
        let loss = loss::mse(&model.forward(&x)?, &first)?;
        let grads = loss.backward()?;
        collect(parameters.iter(), &grads)?; // an error that names every parameter without a gradient
        optimizer.step(&grads)?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {:.5}", loss.to_scalar::<f64>()?);
        }
    }
    Ok(())
}
