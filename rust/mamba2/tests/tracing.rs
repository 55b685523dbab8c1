//! Gradient flow is visible: one event for each parameter, with layer, name and norm.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use std::sync::{Arc, Mutex};

use candle_core::{DType, Device};
use common::noise;
use mamba2::{Architecture, Mamba2Config, Mamba2ForecasterConfig, Model};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

#[derive(Default)]
struct Event {
    layer: String,
    name: String,
    norm: f64,
}

impl Visit for Event {
    fn record_f64(&mut self, _: &Field, value: f64) {
        self.norm = value;
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "layer" => self.layer = value.into(),
            _ => self.name = value.into(),
        }
    }
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

struct Collect(Arc<Mutex<Vec<Event>>>);

impl<S: tracing::Subscriber> Layer<S> for Collect {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == mamba2::trace::GRADIENTS {
            let mut seen = Event::default();
            event.record(&mut seen);
            self.0.lock().unwrap().push(seen);
        }
    }
}

#[test]
fn every_gradient_is_an_event() {
    let mixer = Mamba2Config { d_state: 4, headdim: 4, ..Mamba2Config::new(8) };
    let config = Mamba2ForecasterConfig { mixer, n_layer: 2, d_input: 3, d_output: 1 };
    let model = Model::new(&Architecture::Forecaster(config), DType::F64, &Device::Cpu, 0).unwrap();
    let output = model.forward(&noise(1, &[2, 5, 3], DType::F64), None).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Collect(seen.clone()));
    let grads = tracing::subscriber::with_default(subscriber, || {
        output.backward(&model, &noise(2, &[2, 1], DType::F64), None).unwrap()
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), model.parameters().iter().len());
    let a_log = seen.iter().find(|event| event.layer == "layers.1" && event.name == "mixer.A_log").unwrap();
    assert_eq!(a_log.norm.to_bits(), grads.norms().unwrap()["layers.1.mixer.A_log"].to_bits());
}
