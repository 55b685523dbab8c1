//! Where computation runs: on a thread pool of our own, with the GIL released, open to Ctrl-C, panics caught.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::device::{self, Turn};
use crate::errors::{bridge_error, raise};

/// How often a waiting call looks for signals.
const SIGNALS: Duration = Duration::from_millis(50);
/// How long a waiting call stays awake.
const AWAKE: Duration = Duration::from_micros(500);
/// How long a forked child waits for a lock that its parent's threads may have held when it was forked.
const FORKED_WAIT: Duration = Duration::from_secs(2);
/// Candle walks graphs by recursion; this is deep enough for hundreds of layers.
const STACK: usize = 64 << 20;

const MAX_THREADS: usize = 1024;
/// mimalloc's `mi_option_purge_delay`, which its bindings don't name: milliseconds until freed memory goes back to the system.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
const NEVER: std::ffi::c_long = -1;
/// Where Candle reads the size of its pool.
const CANDLE_THREADS: &str = "CANDLE_NUM_THREADS";

static THREADS: AtomicUsize = AtomicUsize::new(0);
static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);
static LOADED_BY: LazyLock<u32> = LazyLock::new(std::process::id);

/// The instruction set that the kernels run on: what the processor has, unless `MAMBA2_SIMD` says otherwise.
#[pyfunction]
pub fn instruction_set() -> &'static str {
    mamba2::kernels::simd::name()
}

/// Sets how many threads compute, from the next call on. Results don't depend on it.
#[pyfunction]
pub fn set_num_threads(n: &Bound<'_, PyAny>) -> PyResult<()> {
    let number = if n.is_instance_of::<PyBool>() { None } else { n.extract().ok() };
    let Some(n) = number.filter(|n| (1..=MAX_THREADS).contains(n)) else {
        let message = format!("the number of threads must be from 1 to {MAX_THREADS}, got {}", n.repr()?);
        return Err(bridge_error(n.py(), "ConfigError", &message));
    };
    THREADS.store(n, Ordering::Relaxed);
    Ok(())
}

/// How many threads compute: what was set, else `RAYON_NUM_THREADS`, else the processors this process may use.
#[pyfunction]
pub fn get_num_threads() -> usize {
    let from_environment =
        || std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
    match THREADS.load(Ordering::Relaxed) {
        0 => from_environment().unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into)),
        n => n,
    }
}

/// Remembers which process loaded the module, and keeps Candle's elementwise operations on the thread that calls them.
///
/// Candle would split them over a pool of its own, whose threads spin, ignore [`set_num_threads`] and are gone after a fork,
/// where the next operation would wait for them forever.
pub fn loaded() {
    LazyLock::force(&LOADED_BY);
    // SAFETY: sets a number; nothing else of this process sets options of this copy of the allocator.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER) };
    let before = std::env::var_os(CANDLE_THREADS);
    // SAFETY: this runs once, while the module is imported and the GIL is held, so no other Python thread reads or
    // writes the environment.
    unsafe { std::env::set_var(CANDLE_THREADS, "1") };
    candle_core::utils::barrier_pool(); // reads the variable now and never again
    // SAFETY: as above.
    unsafe {
        match before {
            Some(value) => std::env::set_var(CANDLE_THREADS, value),
            None => std::env::remove_var(CANDLE_THREADS),
        }
    }
}

/// The pool, made anew where the number of threads has changed or where this is a forked child: threads don't survive a fork.
fn pool() -> PyResult<Arc<ThreadPool>> {
    let (process, threads) = (std::process::id(), get_num_threads());
    let mut slot = POOL.lock();
    match &*slot {
        Some((owner, pool)) if *owner == process && pool.current_num_threads() == threads => return Ok(pool.clone()),
        Some((owner, pool)) if *owner != process => std::mem::forget(pool.clone()), // it would wait for its threads
        _ => {}
    }
    let built =
        ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK).thread_name(|n| format!("mamba2-{n}")).build();
    let pool = Arc::new(built.map_err(|error| PyRuntimeError::new_err(format!("no thread pool: {error}")))?);
    *slot = Some((process, pool.clone()));
    Ok(pool)
}

/// Frees a graph on the pool: Candle frees by recursion, and the stacks of Python's threads can be small.
pub fn free<T: Send + 'static>(graph: T) {
    if let Ok(pool) = pool() {
        pool.spawn(move || drop(graph));
    }
}

/// Runs `work` without the GIL and gives its result.
///
/// Ctrl-C returns at once with `KeyboardInterrupt`; the work is told to stop, and what it makes is dropped. So `work` must
/// change nothing that outlives it; see [`complete`].
pub fn compute<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> mamba2::Result<R> + Send + 'static,
) -> PyResult<R> {
    run(py, work, true)
}

/// The same for work that changes a model or an optimizer: Ctrl-C is raised when it is done.
pub fn complete<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> mamba2::Result<R> + Send + 'static,
) -> PyResult<R> {
    run(py, work, false)
}

fn run<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> mamba2::Result<R> + Send + 'static,
    may_stop: bool,
) -> PyResult<R> {
    let stop = Arc::new(AtomicBool::new(false));
    let (send, receive) = sync_channel(1);
    let receive = Mutex::new(receive); // shared with the thread that waits without the GIL
    let flag = stop.clone();
    let turn = device::turn(py)?; // before the work is handed to the pool, as all locks
    pool()?.spawn(move || {
        let work = || {
            let made = work()?;
            turn.as_ref().map_or(Ok(()), Turn::finish)?;
            Ok(made)
        };
        let result = catch_unwind(AssertUnwindSafe(|| mamba2::interrupt::scope(flag, work)));
        let _ = send.send(result); // nobody waits after Ctrl-C
    });
    let mut interrupted = None;
    loop {
        match py.detach(|| wait(&receive.lock())) {
            Ok(_) if interrupted.is_some() => {}
            Ok(Ok(result)) => return result.map_err(|error| raise(py, &error)),
            Ok(Err(panic)) => return Err(bridge_error(py, "InternalError", &message(&*panic))),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(bridge_error(py, "InternalError", "a computing thread is gone"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if interrupted.is_none() {
                    interrupted = py.check_signals().err();
                }
                if interrupted.is_none() || !may_stop {
                    continue;
                }
                stop.store(true, Ordering::Relaxed);
            }
        }
        if let Some(error) = interrupted {
            return Err(error);
        }
    }
}

/// Waits for a result, at first without sleeping: to be woken costs more than a short call takes.
fn wait<R>(receive: &Receiver<R>) -> Result<R, RecvTimeoutError> {
    let started = Instant::now();
    while started.elapsed() < AWAKE {
        match receive.try_recv() {
            Ok(result) => return Ok(result),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    receive.recv_timeout(SIGNALS)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a fault inside mamba2_bridge, please report it: {}", text.unwrap_or("a panic without a message"))
}

/// A lock for reading. Taken before the work is handed to the pool: a pool thread that waits for a lock could be the one
/// that, further down its stack, holds it.
pub fn read<T>(py: Python<'_>, lock: &Arc<RwLock<T>>) -> PyResult<ArcRwLockReadGuard<RawRwLock, T>>
where
    T: Send + Sync,
{
    acquire(py, |wait| lock.try_read_arc_for(wait))
}

/// A lock for writing.
pub fn write<T>(py: Python<'_>, lock: &Arc<RwLock<T>>) -> PyResult<ArcRwLockWriteGuard<RawRwLock, T>>
where
    T: Send + Sync,
{
    acquire(py, |wait| lock.try_write_arc_for(wait))
}

/// A lock, taken while Ctrl-C is heard.
pub fn acquire<G: Send>(py: Python<'_>, attempt: impl Fn(Duration) -> Option<G> + Send + Sync) -> PyResult<G> {
    let started = Instant::now();
    loop {
        if let Some(guard) = py.detach(|| attempt(SIGNALS)) {
            return Ok(guard);
        }
        py.check_signals()?;
        if std::process::id() != *LOADED_BY && started.elapsed() > FORKED_WAIT {
            return Err(PyRuntimeError::new_err(
                "the model was in use by another thread when this process was forked: make the model in the child, \
                 or start processes by spawn",
            ));
        }
    }
}
