//! Which of Candle's own operations can be trusted? A table, measured on the Candle that is linked.
//!
//! Each operation that a sequence model meets is computed in f32 and f64, for batches of 1 and 2, on contiguous operands and on views
//! of each operand in turn. Its values are compared with plain loops over f64 numbers that know nothing of Candle, and its gradients,
//! under a random upstream gradient, with finite differences of those loops.
//!
//! `cargo run --release --package candle-audit --example operations` prints the table.
//!
//! ```
//! use candle_audit::operations::{Verdict, operation};
//!
//! let softmax = operation("softmax_last_dim").expect("it is in the table");
//! assert!(softmax.cells.iter().any(|cell| matches!(cell.verdict, Verdict::NoBackward { .. })));
//! ```

mod array;
mod case;
mod cases;
mod evaluate;
mod markdown;
mod numeric;

use std::fmt;

use candle_core::DType;

pub use crate::finding::Layout;
pub use markdown::{markdown, render};

/// The version of candle-core that is linked: the one in the Cargo.lock of the workspace that was built. None where the build
/// found no such file, or more than one candle-core in it.
#[must_use]
pub fn candle_version() -> Option<&'static str> {
    option_env!("CANDLE_AUDIT_CANDLE_VERSION")
}

/// What was found about an operation under given conditions. Errors are the largest absolute ones, relative to the largest
/// element of what was to come.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Values and gradients are right.
    Right,
    /// Right to fewer digits than the element type holds, but to three at least.
    Imprecise {
        /// The relative error.
        error: f64,
        /// Whose gradient; none if it's the values.
        gradient: Option<&'static str>,
    },
    /// The operation refuses these operands.
    Unsupported {
        /// Candle's message.
        message: String,
    },
    /// The values are right, and an operand gets no gradient.
    NoBackward {
        /// The operand.
        input: &'static str,
        /// What the backward pass said, where it said something.
        message: Option<String>,
    },
    /// The gradient of an operand is wrong.
    WrongGradient {
        /// The operand.
        input: &'static str,
        /// The relative error.
        error: f64,
    },
    /// The values are wrong.
    WrongValue {
        /// The relative error; infinite where the shape is another.
        error: f64,
    },
}

impl Verdict {
    /// From 0, right, to 5, wrong values.
    pub(crate) fn severity(&self) -> u8 {
        match self {
            Self::Right => 0,
            Self::Imprecise { .. } => 1,
            Self::Unsupported { .. } => 2,
            Self::NoBackward { .. } => 3,
            Self::WrongGradient { .. } => 4,
            Self::WrongValue { .. } => 5,
        }
    }

    /// The relative error; 0 where there is none.
    #[must_use]
    pub fn error(&self) -> f64 {
        match self {
            Self::Imprecise { error, .. } | Self::WrongGradient { error, .. } | Self::WrongValue { error } => *error,
            Self::Right | Self::Unsupported { .. } | Self::NoBackward { .. } => 0.0,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("right"),
            Self::Imprecise { error, gradient: None } => write!(f, "right to {error:.0e}"),
            Self::Imprecise { error, gradient: Some(input) } => write!(f, "gradient of {input} right to {error:.0e}"),
            Self::Unsupported { .. } => f.write_str("unsupported"),
            Self::NoBackward { input, .. } => write!(f, "**no backward** to {input}"),
            // By how much is another number in each run: Candle reads memory that isn't the operand's.
            Self::WrongGradient { input, .. } => write!(f, "**wrong gradient** of {input}"),
            Self::WrongValue { .. } => f.write_str("**wrong value**"),
        }
    }
}

/// What was found under one set of conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The element type of all operands.
    pub dtype: DType,
    /// The number of sequences in a batch.
    pub batch: usize,
    /// The layout of one operand; the others are contiguous.
    pub layout: Layout,
    /// That operand; none where all are contiguous.
    pub view_of: Option<&'static str>,
    /// What was found.
    pub verdict: Verdict,
}

/// One operation under all conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Candle's name, and what sets this use apart.
    pub operation: &'static str,
    /// The conditions and what was found.
    pub cells: Vec<Cell>,
}

impl Row {
    /// The cells of these conditions: several where more than one operand can have the layout, none where none can.
    pub fn cells(&self, dtype: DType, batch: usize, layout: Layout) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| (cell.dtype, cell.batch, cell.layout) == (dtype, batch, layout))
    }

    /// The worst cell of these conditions.
    #[must_use]
    pub fn worst(&self, dtype: DType, batch: usize, layout: Layout) -> Option<&Cell> {
        self.cells(dtype, batch, layout).max_by_key(|cell| cell.verdict.severity())
    }

    /// Whether every cell is right, or right to fewer digits than the type holds, or refused with an error.
    #[must_use]
    pub fn is_trustworthy(&self) -> bool {
        self.cells.iter().all(|cell| cell.verdict.severity() <= 2)
    }
}

/// Measures all operations: some seconds.
#[must_use]
pub fn table() -> Vec<Row> {
    cases::all().iter().map(evaluate::row).collect()
}

/// Measures one operation.
#[must_use]
pub fn operation(name: &str) -> Option<Row> {
    cases::all().iter().find(|case| case.name == name).map(evaluate::row)
}
