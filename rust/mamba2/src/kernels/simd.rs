//! Which instruction set the kernels run on.

use std::sync::LazyLock;

use pulp::{Arch, Scalar, Simd, WithSimd};

/// Environment variable that keeps the kernels to plain instructions (`scalar`), to find out whether a fault is theirs.
pub const SWITCH: &str = "MAMBA2_SIMD";

static ARCH: LazyLock<Option<Arch>> =
    LazyLock::new(|| (std::env::var_os(SWITCH).is_none_or(|value| value != "scalar")).then(Arch::new));

/// Runs `kernel` compiled for the best instruction set of this machine.
///
/// Everything the kernel calls has to be inlined into it: a function of its own is compiled for plain instructions, and every
/// vector operation in it becomes a call.
#[inline]
pub(crate) fn run<K: WithSimd>(kernel: K) -> K::Output {
    match *ARCH {
        Some(arch) => arch.dispatch(kernel),
        None => kernel.with_simd(Scalar),
    }
}

/// The name of the instruction set in use.
#[must_use]
pub fn name() -> &'static str {
    struct Name;
    impl WithSimd for Name {
        type Output = &'static str;
        fn with_simd<S: Simd>(self, _: S) -> &'static str {
            match (S::IS_SCALAR, size_of::<S::f32s>()) {
                (true, _) => "scalar",
                (_, 16) => "128-bit vectors",
                (_, 32) => "256-bit vectors",
                _ => "512-bit vectors",
            }
        }
    }
    run(Name)
}

/// Tells the machine that `line` will be needed soon, where it can be told.
#[inline(always)]
#[allow(unused_variables)] // on other machines
pub(crate) fn prefetch<T>(line: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in line.chunks((64 / size_of::<T>()).max(1)) {
            // SAFETY: a hint; every machine of this architecture has the instruction.
            unsafe { _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T0) };
        }
    }
}
