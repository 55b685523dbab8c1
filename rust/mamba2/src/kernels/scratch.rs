//! Memory that calls reuse: what one superblock or product needs.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::real::Real;
use super::ssd_backward::{GroupGradients, HeadScratch};

/// Buffers of one sequence at work. Each grows to what was asked of it and keeps what it held.
#[derive(Debug, Default)]
pub struct Workspace<T> {
    /// (seqlen, `d_in_proj`): a short sequence's columns, or the gradient to them.
    pub(crate) zxbcdt: Vec<T>,
    /// (seqlen, `d_inner`): what the core makes of them, or the gradient to it.
    pub(crate) inner: Vec<T>,
    /// (nheads, tokens, width).
    pub(crate) x: Vec<T>,
    /// (ngroups, tokens, `state_stride`).
    pub(crate) b: Vec<T>,
    /// (ngroups, tokens, `state_stride`).
    pub(crate) c: Vec<T>,
    /// (ngroups, nchunks, `d_state`, CHUNK).
    pub(crate) b_transposed: Vec<T>,
    /// (ngroups, nchunks, `d_state`, CHUNK).
    pub(crate) c_transposed: Vec<T>,
    /// (ngroups, nchunks, CHUNK, CHUNK).
    pub(crate) scores: Vec<f64>,
    /// (nheads, tokens).
    pub(crate) dt: Vec<T>,
    /// (nheads, tokens, width).
    pub(crate) y: Vec<T>,
    /// (nheads, `d_state`, width).
    pub(crate) states: Vec<T>,
    /// (tokens, `conv_dim`): slopes of the SiLU after the convolution.
    pub(crate) slopes: Vec<T>,
    /// (nheads, tokens, width).
    pub(crate) dx: Vec<T>,
    /// (nheads, tokens).
    pub(crate) d_dt: Vec<T>,
    /// (ngroups, tokens, `state_stride`).
    pub(crate) db: Vec<T>,
    /// (ngroups, tokens, `state_stride`).
    pub(crate) dc: Vec<T>,
    /// (tokens, channels), a few of each: gradients to the convolution's output.
    pub(crate) d_pre: Vec<T>,
    /// (tokens, channels), a few of each: gradients to the raw columns.
    pub(crate) d_raw: Vec<T>,
    /// Panels of a product's left operand.
    pub(crate) left: Vec<T>,
    /// Panels of a product's right operand.
    pub(crate) right: Vec<T>,
    /// One for each group of heads that is a task.
    pub(crate) tasks: Vec<(GroupGradients<T>, HeadScratch<T>)>,
}

/// The first `len` elements of `buffer`, which grows if it has fewer.
pub(crate) fn room<T: Real>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::ZERO);
    }
    &mut buffer[..len]
}

/// A workspace of this thread, which keeps it for the next call.
pub(crate) struct Scratch<T: Real>(Box<Workspace<T>>);

/// Workspaces that nobody uses.
pub type Pool<T> = RefCell<Vec<Box<Workspace<T>>>>;

impl<T: Real> Scratch<T> {
    pub(crate) fn take() -> Self {
        Self(T::pool().try_with(|pool| pool.borrow_mut().pop()).ok().flatten().unwrap_or_default())
    }
}

impl<T: Real> Drop for Scratch<T> {
    fn drop(&mut self) {
        // A thread that is ending keeps nothing.
        let _ = T::pool().try_with(|pool| pool.borrow_mut().push(std::mem::take(&mut self.0)));
    }
}

impl<T: Real> Deref for Scratch<T> {
    type Target = Workspace<T>;

    fn deref(&self) -> &Workspace<T> {
        &self.0
    }
}

impl<T: Real> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut Workspace<T> {
        &mut self.0
    }
}
