//! What the benchmarks ask of the native side: products at the machine's speed, and where a pass spends its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use gemm::Parallelism;
use mamba2::trace::STAGES;
use mamba2::{Architecture, Mamba2Config, Model};
use pyo3::prelude::*;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::arrays::parse_dtype;
use crate::runtime::compute;

/// Seconds of one product (m, k)·(k, n) through the gemm crate, the measure of what the machine can do. `transposed`: the right operand
/// lies as (n, k).
#[pyfunction]
pub fn gemm_seconds(py: Python<'_>, m: usize, k: usize, n: usize, dtype: &str, transposed: bool) -> PyResult<f64> {
    let dtype = parse_dtype(py, dtype)?;
    compute(py, move || {
        Ok(match dtype {
            DType::F32 => product_seconds(m, k, n, transposed, 0_f32, 1.),
            _ => product_seconds(m, k, n, transposed, 0_f64, 1.),
        })
    })
}

fn product_seconds<T: Copy + 'static>(m: usize, k: usize, n: usize, transposed: bool, zero: T, one: T) -> f64 {
    let (left, right, mut out) = (vec![one; m * k], vec![one; k * n], Vec::<T>::with_capacity(m * n));
    let stride = |stride: usize| stride.cast_signed();
    let (column, row) = if transposed { (stride(k), 1) } else { (1, stride(n)) };
    let parallelism = Parallelism::Rayon(rayon::current_num_threads());
    let started = Instant::now();
    // SAFETY: the operands lie in their vectors; `out` has room for m·n elements and is only written.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            stride(n),
            false,
            left.as_ptr(),
            1,
            stride(k),
            right.as_ptr(),
            column,
            row,
            zero,
            one,
            false,
            false,
            false,
            parallelism,
        );
    }
    started.elapsed().as_secs_f64()
}

/// Seconds of each stage of one forward pass, or forward and backward, of a block of the 130m size in fp32 over `seqlen` tokens.
#[pyfunction]
pub fn stage_seconds(py: Python<'_>, seqlen: usize, backward: bool) -> PyResult<BTreeMap<String, f64>> {
    compute(py, move || {
        let model = Model::new(&Architecture::Mixer(Mamba2Config::new(768)), DType::F32, &Device::Cpu, 0)?;
        let u = Tensor::rand(-1_f32, 1., (1, seqlen, 768), &Device::Cpu)?;
        let run = || -> mamba2::Result<()> {
            if backward {
                model.forward(&u, None)?.backward(&model, &u, None)?;
            } else {
                model.infer(&u, None)?;
            }
            Ok(())
        };
        run()?; // buffers and threads are there afterwards
        let watch = StopWatch::default();
        tracing::subscriber::with_default(watch.clone(), run)?;
        Ok(watch.totals())
    })
}

/// Adds up the time between entering and leaving the stages' spans, by name. Stages don't nest.
#[derive(Clone, Default)]
struct StopWatch(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    names: Vec<&'static str>,
    entered: Option<Instant>,
    totals: BTreeMap<String, f64>,
}

impl StopWatch {
    fn with<R>(&self, work: impl FnOnce(&mut Running) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn totals(&self) -> BTreeMap<String, f64> {
        self.with(|running| running.totals.clone())
    }
}

impl Subscriber for StopWatch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == STAGES
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.with(|running| {
            running.names.push(span.metadata().name());
            Id::from_u64(running.names.len() as u64)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.with(|running| running.entered = Some(Instant::now()));
    }

    fn exit(&self, span: &Id) {
        self.with(|running| {
            let at = usize::try_from(span.into_u64()).unwrap_or_default();
            if let (Some(entered), Some(name)) = (running.entered.take(), running.names.get(at.wrapping_sub(1))) {
                *running.totals.entry((*name).to_owned()).or_default() += entered.elapsed().as_secs_f64();
            }
        });
    }
}
