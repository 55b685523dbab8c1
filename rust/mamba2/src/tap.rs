//! Taps: named intermediate tensors of a forward pass, recorded with their gradients, and replaced where others are fed.
//!
//! A tap records what arrives at it, and in backward the gradient that arrives. Where something is fed to it, that goes on in its
//! place: the fed value down the forward pass, the fed gradient up the backward pass. With every tap fed by another implementation's
//! numbers, each stage runs on that implementation's inputs and upstream gradients, and no stage's error reaches the next.
//!
//! A mixer's taps, in forward order, on the composed form; shapes are (batch, seqlen, …):
//!
//! | name | what | width |
//! |---|---|---|
//! | `in_proj.mlp` | z0 and x0, where `d_mlp` > 0 | `2·d_mlp` |
//! | `in_proj.z` | z | `d_ssm` |
//! | `in_proj.xBC` | raw xBC | `conv_dim` |
//! | `in_proj.dt` | raw dt | nheads |
//! | `conv` | xBC after convolution and SiLU | `conv_dim` |
//! | `dt` | Δ, after softplus and clamp | nheads |
//! | `scan` | y of the scan, with D's part | `d_ssm` |
//! | `norm` | y after gate and norm | `d_ssm` |
//! | `mlp` | SiLU(z0) ⊙ x0, where `d_mlp` > 0 | `d_mlp` |
//! | `out_proj` | the mixer's output | `d_model` |
//!
//! On the fused kernels a mixer is one operation: it has `out_proj` alone. A forecaster's taps: `encoder`; of each layer `layers.{i}.norm`,
//! `layers.{i}.mixer.` and the mixer's, and `layers.{i}`, after the residual addition; `norm_f`, (batch, `d_model`) of the last token;
//! and `head`, the prediction.
//!
//! Values and gradients are recorded in the model's element type. Where the composed form computes wider (`dt` and `scan` of an f32 model
//! on a CPU), the wide tensor goes on all the same, so recording changes no bit of what the model gives; to feed such a tap its own
//! recorded value does, by the rounding. An input without elements is not computed with, so it has no intermediates.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Tensor};
use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::ops::with_gradient;
use crate::state::check_dtype;

/// What goes on from a tap in place of what arrives. Both have the shape of what arrives and the model's element type.
#[derive(Debug, Clone)]
pub struct Fed {
    /// Goes on down the forward pass.
    pub value: Tensor,
    /// Goes on up the backward pass; None: what arrives does.
    pub gradient: Option<Tensor>,
}

impl Fed {
    fn check(&self, name: &str, arrived: &Tensor, dtype: DType) -> Result<()> {
        let value = (format!("the value fed to {name}"), &self.value);
        let gradient = self.gradient.as_ref().map(|gradient| (format!("the gradient fed to {name}"), gradient));
        for (what, tensor) in [value].into_iter().chain(gradient) {
            check_dtype(&what, tensor, dtype)?;
            if tensor.dims() != arrived.dims() {
                return Err(Error::shape(what, crate::error::shape(arrived.dims()), tensor.dims()));
            }
        }
        Ok(())
    }
}

/// What is fed, by the taps' names.
pub type Feed = IndexMap<String, Fed>;

/// The taps of a module's forward pass: nothing is recorded, or all goes to one [`Recording`].
#[derive(Debug, Clone, Default)]
pub struct Taps {
    recording: Option<Recording>,
    prefix: String,
}

impl Taps {
    /// Taps that record nothing and cost nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The taps of the module `name` inside this one.
    #[must_use]
    pub fn within(&self, name: impl Display) -> Self {
        match &self.recording {
            Some(recording) => Self { recording: Some(recording.clone()), prefix: format!("{}{name}.", self.prefix) },
            None => Self::none(),
        }
    }

    /// Records `tensor`, and later its gradient, and gives what goes on: a tensor equal to it, or what is fed.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::DType`]: what is fed doesn't fit. [`Error::Graph`]: the recording has this name already.
    pub fn at(&self, name: impl Display, tensor: Tensor) -> Result<Tensor> {
        match &self.recording {
            Some(recording) => recording.tap(format!("{}{name}", self.prefix), tensor),
            None => Ok(tensor),
        }
    }
}

/// The intermediates of one forward pass, and of the backward pass that followed it last. A handle: clones share them.
///
/// It holds no part of the graph.
#[derive(Debug, Clone)]
pub struct Recording(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dtype: DType,
    /// What hasn't met its tap.
    feed: Mutex<Feed>,
    intermediates: Mutex<IndexMap<String, Intermediate>>,
}

#[derive(Debug)]
struct Intermediate {
    value: Tensor,
    gradient: Option<Tensor>,
}

impl Recording {
    /// An empty recording, to be kept in `dtype`, with what will be fed.
    #[must_use]
    pub fn new(dtype: DType, feed: Feed) -> Self {
        Self(Arc::new(Shared { dtype, feed: Mutex::new(feed), intermediates: Mutex::default() }))
    }

    /// The taps of the outermost module.
    #[must_use]
    pub fn taps(&self) -> Taps {
        Taps { recording: Some(self.clone()), prefix: String::new() }
    }

    /// Names and values in forward order: what arrived at the taps, where something was fed as well.
    #[must_use]
    pub fn values(&self) -> IndexMap<String, Tensor> {
        let all = lock(&self.0.intermediates);
        all.iter().map(|(name, intermediate)| (name.clone(), intermediate.value.clone())).collect()
    }

    /// Names and gradients in forward order, of the intermediates that a backward pass has reached.
    #[must_use]
    pub fn gradients(&self) -> IndexMap<String, Tensor> {
        let all = lock(&self.0.intermediates);
        all.iter().filter_map(|(name, intermediate)| Some((name.clone(), intermediate.gradient.clone()?))).collect()
    }

    /// Refuses what was fed to no tap, after a forward pass.
    ///
    /// # Errors
    /// [`Error::Config`] with the taps that there are.
    pub fn check_fed(&self) -> Result<()> {
        let left: Vec<_> = lock(&self.0.feed).keys().cloned().collect();
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = lock(&self.0.intermediates).keys().cloned().collect();
        let rule = if names.is_empty() {
            "empty, since an input without elements has no intermediates".into()
        } else {
            format!("by the names of intermediates ({})", names.join(", "))
        };
        Err(Error::config("feed", rule, left))
    }

    fn tap(&self, name: String, tensor: Tensor) -> Result<Tensor> {
        let Shared { dtype, feed, intermediates } = &*self.0;
        let fed = lock(feed).shift_remove(&name);
        if let Some(fed) = &fed {
            fed.check(&name, &tensor, *dtype)?;
        }
        let arrived = Intermediate { value: tensor.detach().to_dtype(*dtype)?, gradient: None };
        if lock(intermediates).insert(name.clone(), arrived).is_some() {
            return Err(Error::Graph(format!("{name} was recorded before: a recording serves one forward pass")));
        }
        let (value, gradient) = match fed {
            Some(Fed { value, gradient }) => {
                let here = |fed: Tensor| fed.detach().to_device(tensor.device());
                (here(value)?.to_dtype(tensor.dtype())?, gradient.map(here).transpose()?)
            }
            None => (tensor.detach(), None),
        };
        let recording = self.clone();
        let pullback = move |_: &Tensor, _: &Tensor, upstream: &Tensor| {
            recording.reached(&name, upstream)?;
            match &gradient {
                Some(gradient) => gradient.to_dtype(upstream.dtype()),
                None => Ok(upstream.clone()),
            }
        };
        // A view may be contiguous and yet start inside its storage, which is copied as a whole.
        Ok(with_gradient("tap", &tensor, value.force_contiguous()?, pullback)?)
    }

    fn reached(&self, name: &str, upstream: &Tensor) -> candle_core::Result<()> {
        let upstream = upstream.to_dtype(self.0.dtype)?;
        if let Some(intermediate) = lock(&self.0.intermediates).get_mut(name) {
            intermediate.gradient = Some(upstream);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
