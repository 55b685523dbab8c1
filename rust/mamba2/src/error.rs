//! What can go wrong, each message with what was expected, what came, and of which name.

use std::path::{Path, PathBuf};

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Every way a call can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor of another shape than the call needs.
    #[error("{what} must have shape {expected}, got {}", shape(got))]
    Shape {
        /// The argument's name.
        what: String,
        /// The expected shape, with the names of its dimensions.
        expected: String,
        /// The shape that came.
        got: Vec<usize>,
    },
    /// A tensor of another element type than the model's.
    #[error("{what} must be {expected}, got {got}")]
    DType {
        /// The argument's name.
        what: String,
        /// The expected element type.
        expected: String,
        /// The element type that came.
        got: String,
    },
    /// A field of a configuration breaks its rule.
    #[error("{field} must be {rule}, got {value}")]
    Config {
        /// The field's name.
        field: String,
        /// What the field may be.
        rule: String,
        /// The value that came.
        value: String,
    },
    /// Names or shapes of a set of parameters don't fit the model; nothing was written.
    #[error("{0}; nothing was loaded")]
    StateDict(String),
    /// A value that holds NaN or infinity where only finite numbers are accepted.
    #[error("{name} holds {count} NaN or infinite values; nothing was loaded (allow_nonfinite accepts them)")]
    NonFinite {
        /// The tensor's name.
        name: String,
        /// How many of its elements are not finite.
        count: usize,
    },
    /// Parameters that a backward pass did not reach.
    #[error("{} of {total} parameters got no gradient: {}. They were not reached from the output.", names.len(), names.join(", "))]
    MissingGradient {
        /// The parameters without a gradient, in the model's order.
        names: Vec<String>,
        /// How many parameters there are.
        total: usize,
    },
    /// Gradients of parameters that are not the model's; nothing was changed.
    #[error("gradients of other parameters: {}; nothing was changed", .0.join(", "))]
    OtherGradients(Vec<String>),
    /// A graph that can't be used as asked.
    #[error("{0}")]
    Graph(String),
    /// A device that this build or machine doesn't have.
    #[error("{0}")]
    Device(String),
    /// A file that is damaged, or isn't what it should be.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// More memory than there is.
    #[error("not enough memory for {what}: {bytes} bytes")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        bytes: usize,
    },
    /// The computation was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// An error of Candle's.
    #[error(transparent)]
    Candle(candle_core::Error),
}

impl Error {
    /// A shape error of the argument `what`.
    pub fn shape(what: impl Into<String>, expected: impl Into<String>, got: &[usize]) -> Self {
        Self::Shape { what: what.into(), expected: expected.into(), got: got.to_vec() }
    }

    /// A configuration error of `field`.
    pub fn config(field: &str, rule: impl Into<String>, value: impl std::fmt::Debug) -> Self {
        Self::Config { field: field.into(), rule: rule.into(), value: format!("{value:?}") }
    }

    /// An operating system's error about `path`.
    #[must_use]
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// A fault in the contents of the file `path`.
    pub fn checkpoint(path: &Path, reason: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.to_owned(), reason: reason.into() }
    }
}

/// Candle's errors without the backtrace that it prints into their messages.
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        match error {
            candle_core::Error::WithBacktrace { inner, .. } => Self::from(*inner),
            other => Self::Candle(other),
        }
    }
}

/// For Candle models that this crate's modules are part of.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(inner) => inner,
            other => Self::wrap(other),
        }
    }
}

/// A shape as Python prints it: `(4,)`, `(2, 3)`.
pub(crate) fn shape(dims: &[usize]) -> String {
    match dims {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
