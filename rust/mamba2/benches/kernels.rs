//! Single kernels at the size of a block of the 130m model, for work on one of them: `cargo bench --package mamba2`.
//!
//! Times of kernels that are compared belong in one run; against other implementations, `make bench` does that.

use divan::Bencher;
use mamba2::Mamba2Config;
use mamba2::kernels::core::{Core, CoreInput, CoreOptions, CoreParams};
use mamba2::kernels::core_backward::CoreUpstream;
use mamba2::kernels::core_forward::Wanted;
use mamba2::kernels::linear::Linear;
use mamba2::kernels::real::Real;
use mamba2::kernels::rms_norm::RmsNorm;
use mamba2::kernels::step::StepInput;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

fn noise<T: Real>(len: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| T::from_f64(rng.random_range(-1.0..1.0))).collect()
}

/// A core's parameters and one input.
struct Operands<T> {
    config: Mamba2Config,
    seqlen: usize,
    zxbcdt: Vec<T>,
    dy: Vec<T>,
    params: [Vec<T>; 6],
}

impl<T: Real> Operands<T> {
    fn new(seqlen: usize) -> Self {
        let config = Mamba2Config::new(768);
        let dims = config.dims().unwrap_or_else(|error| panic!("{error}"));
        let sizes = [dims.conv_dim * dims.d_conv, dims.conv_dim, dims.nheads, dims.nheads, dims.nheads, dims.d_ssm];
        Self {
            seqlen,
            zxbcdt: noise(seqlen * dims.d_in_proj, 1),
            dy: noise(seqlen * dims.d_inner, 2),
            params: std::array::from_fn(|at| noise(sizes[at], at as u64 + 3)),
            config,
        }
    }

    fn core(&self) -> Core<'_, T> {
        let [conv_weight, conv_bias, dt_bias, a_log, d, norm_weight] = &self.params;
        Core {
            dims: self.config.dims().unwrap_or_else(|error| panic!("{error}")),
            options: CoreOptions::of(&self.config),
            params: CoreParams {
                conv_weight,
                conv_bias: Some(conv_bias),
                dt_bias,
                a_log,
                d,
                norm_weight: Some(norm_weight),
            },
        }
    }

    fn input(&self) -> CoreInput<'_, T> {
        CoreInput { batch: 1, seqlen: self.seqlen, zxbcdt: &self.zxbcdt, conv_state: None, ssm_state: None }
    }
}

#[divan::bench(types = [f32, f64], args = [512, 2048])]
fn core_forward<T: Real>(bencher: Bencher<'_, '_>, seqlen: usize) {
    let operands = Operands::<T>::new(seqlen);
    let wanted = Wanted { states: true, saved: false };
    bencher.bench_local(|| operands.core().forward(&operands.input(), wanted, None));
}

#[divan::bench(types = [f32, f64], args = [512, 2048])]
fn core_backward<T: Real>(bencher: Bencher<'_, '_>, seqlen: usize) {
    let operands = Operands::<T>::new(seqlen);
    let wanted = Wanted { states: false, saved: true };
    let output = operands.core().forward(&operands.input(), wanted, None);
    let Ok(Some(saved)) = output.map(|output| output.saved) else { panic!("nothing was saved") };
    let upstream = CoreUpstream { y: &operands.dy, conv_state: None, ssm_state: None };
    bencher.bench_local(|| operands.core().backward(&operands.input(), &saved, &upstream, false, None));
}

#[divan::bench(types = [f32, f64])]
fn core_step<T: Real>(bencher: Bencher<'_, '_>) {
    let operands = Operands::<T>::new(1);
    let dims = operands.core().dims;
    let (conv_state, ssm_state) = (noise(dims.conv_dim * (dims.d_conv - 1), 20), noise(dims.d_ssm * dims.d_state, 21));
    let input = StepInput { batch: 1, zxbcdt: &operands.zxbcdt, conv_state: &conv_state, ssm_state: &ssm_state };
    bencher.bench_local(|| operands.core().step(&input));
}

#[divan::bench(types = [f32, f64], args = [1, 4, 512, 2048])]
fn in_proj<T: Real>(bencher: Bencher<'_, '_>, rows: usize) {
    let (weight, x) = (noise::<T>(3352 * 768, 1), noise::<T>(rows * 768, 2));
    bencher.bench_local(|| Linear { weight: &weight, bias: None, inputs: 768 }.forward(&x));
}

#[divan::bench(types = [f32, f64])]
fn rms_norm<T: Real>(bencher: Bencher<'_, '_>) {
    let (weight, x) = (noise::<T>(768, 1), noise::<T>(2048 * 768, 2));
    bencher.bench_local(|| RmsNorm { weight: &weight, eps: 1e-5 }.forward(&x));
}
