//! What can go wrong, each message with what was expected, what came, and of which name.

use crate::check_gradients::GradientReport;
use crate::report::Report;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Every way a call can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A check found faults.
    #[error("{0}")]
    Faults(Report),
    /// Gradients disagree with finite differences, are missing or can't be judged.
    #[error("{0}")]
    Gradients(GradientReport),
    /// A tensor of another element type than the check can work on.
    #[error("{what} must be {expected}, got {got}")]
    DType {
        /// The tensor.
        what: String,
        /// The element type that is needed.
        expected: &'static str,
        /// The element type that came.
        got: &'static str,
    },
    /// A tensor of another shape than the check can work on.
    #[error("{what} must have {expected}, got shape {}", crate::variables::shape(got))]
    Shape {
        /// The tensor.
        what: String,
        /// What its shape must be.
        expected: String,
        /// The shape that came.
        got: Vec<usize>,
    },
    /// The same model gave two results for the same values, so no change can be told from chance.
    #[error(
        "two runs on the same values must give the same result, got a difference of {difference:e}: switch off dropout and what else is random"
    )]
    NotDeterministic {
        /// The largest difference.
        difference: f64,
    },
    /// The backward pass failed or panicked.
    #[error("the backward pass must run to its end, got: {0}")]
    Backward(String),
    /// A name or pattern that fits no variable: it's spelt wrong, or the variable is gone.
    #[error("`{pattern}` must be the name of a variable, or a pattern (`*` stands for any text) of some, got variables {}", names.join(", "))]
    NoSuchVariable {
        /// The name or pattern.
        pattern: String,
        /// The variables that there are.
        names: Vec<String>,
    },
    /// An error of Candle's.
    #[error(transparent)]
    Candle(candle_core::Error),
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

/// For functions that return Candle's result.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(inner) => inner,
            other => Self::wrap(other),
        }
    }
}
