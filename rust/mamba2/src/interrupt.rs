//! A way to stop a long computation from another thread: forward and backward look at the flag of their thread between stages.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

thread_local! {
    static FLAG: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread so that it returns [`Error::Interrupted`] soon after `flag` becomes true.
pub fn scope<R>(flag: Arc<AtomicBool>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<AtomicBool>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FLAG.with(|cell| *cell.borrow_mut() = self.0.take());
        }
    }
    let _restore = Restore(FLAG.with(|cell| cell.borrow_mut().replace(flag)));
    work()
}

/// An error once the flag of the enclosing [`scope`] is true.
pub(crate) fn check() -> Result<()> {
    let stop = FLAG.with(|cell| cell.borrow().as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)));
    if stop { Err(Error::Interrupted) } else { Ok(()) }
}

/// The flag of the enclosing [`scope`], for work on other threads.
pub(crate) fn flag() -> Option<Arc<AtomicBool>> {
    FLAG.with(|cell| cell.borrow().clone())
}

/// What kernels that were told to stop become.
pub(crate) fn stopped(_: crate::kernels::core::Stopped) -> candle_core::Error {
    Error::Interrupted.into()
}
