//! Work cut by the problem's shape, never by the number of threads, and memory that several tasks fill.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

/// Whether the parts of a piece of work may run at once. Their results don't depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// All of the pool.
    Many,
    /// The caller's own: the work is itself a part of parallel work.
    One,
}

impl Threads {
    /// Those that sequences are spread over, where each of them runs on `self`.
    pub(crate) fn over_sequences(self) -> Self {
        match self {
            Self::Many => Self::One,
            Self::One => Self::Many,
        }
    }

    /// Runs `work` for each number below `count`. A thread that is done takes the next one, so that none waits for a slower one longer
    /// than the last of them takes.
    pub(crate) fn each(self, count: usize, work: impl Fn(usize) + Send + Sync) {
        let threads = rayon::current_num_threads().min(count);
        if self == Self::One || threads <= 1 {
            return (0..count).for_each(work);
        }
        let next = AtomicUsize::new(0);
        (0..threads).into_par_iter().with_max_len(1).for_each(|_| {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    break;
                }
                work(at);
            }
        });
    }
}

impl Threads {
    /// The same for work that may fail; what fails ends the rest soon.
    pub(crate) fn try_each<E: Send>(
        self,
        count: usize,
        work: impl Fn(usize) -> Result<(), E> + Send + Sync,
    ) -> Result<(), E> {
        let failed = Mutex::new(None);
        let stopped = AtomicBool::new(false);
        self.each(count, |at| {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = work(at) {
                stopped.store(true, Ordering::Relaxed);
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// A slice that several tasks write at once, each its own elements.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

// SAFETY: who takes a part promises that nobody else does.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No two parts that live at the same time overlap.
    #[inline(always)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part beyond its slice");
        // SAFETY: it lies in the slice, which outlives 'a, and by the caller's promise nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Room for `len` elements that are all written before they are read: zeroing it first would cost as much as a pass over it.
pub(crate) struct Unfilled<T>(Box<[MaybeUninit<T>]>);

impl<T: Copy> Unfilled<T> {
    pub(crate) fn new(len: usize) -> Self {
        Self(Box::new_uninit_slice(len))
    }

    /// The elements, to be written.
    pub(crate) fn slots(&mut self) -> &mut [MaybeUninit<T>] {
        &mut self.0
    }

    /// # Safety
    /// Every element has been written.
    pub(crate) unsafe fn filled(self) -> Vec<T> {
        // SAFETY: by the caller's promise.
        unsafe { self.0.assume_init() }.into_vec()
    }
}

/// A slice as room to be written.
///
/// # Safety
/// Nothing but numbers is written to it.
pub(crate) unsafe fn slots<T: Copy>(slice: &mut [T]) -> &mut [MaybeUninit<T>] {
    // SAFETY: the layouts are the same, and by the caller's promise all elements stay filled.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) }
}

/// Writes the numbers of `from` into `to`, of the same length.
#[inline(always)]
pub(crate) fn fill<T: Copy>(to: &mut [MaybeUninit<T>], from: &[T]) {
    for (to, &x) in to.iter_mut().zip(from) {
        to.write(x);
    }
}
