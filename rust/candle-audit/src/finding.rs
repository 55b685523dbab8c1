//! Faults that the checks find, each with the name or the place.

use std::fmt;

use candle_core::DType;

use crate::variables::shape;

/// One node of a graph: a tensor on the way from the variables to the loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its place in the order of the forward pass, from 1. Candle doesn't tell the name of the operation that made it.
    pub position: usize,
    /// How many nodes the graph has.
    pub total: usize,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its element type.
    pub dtype: DType,
    /// Its name, where it's a variable that has one.
    pub name: Option<String>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ")?,
            None => write!(f, "node {} of {}, ", self.position, self.total)?,
        }
        write!(f, "{} {}", shape(&self.shape), self.dtype.as_str())
    }
}

/// How a probe lays an input out in memory without changing its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Layout {
    /// Row by row, without gaps.
    Contiguous,
    /// A transposition of its last two dimensions, stored the other way round.
    Transposed,
    /// A slice of its last dimension, out of a longer one.
    Narrowed,
    /// The first dimension repeats one element (stride 0).
    Broadcast,
    /// As it was given.
    Given,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contiguous => "contiguous",
            Self::Transposed => "transposed",
            Self::Narrowed => "narrowed",
            Self::Broadcast => "broadcast",
            Self::Given => "as given",
        })
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// The loss depends on no variable at all.
    NoGraph,
    /// A variable that should be there is not among the model's: a plain tensor shows in neither map nor graph.
    Absent {
        /// The variable.
        name: String,
        /// The shape it should have.
        shape: Vec<usize>,
    },
    /// A variable that should not be there.
    Surplus {
        /// The variable.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A variable of another shape than it should have.
    VariableShape {
        /// The variable.
        name: String,
        /// The shape it should have.
        expected: Vec<usize>,
        /// Its shape.
        got: Vec<usize>,
    },
    /// The loss doesn't depend on the variable.
    NotReached {
        /// The variable.
        name: String,
    },
    /// The loss depends on a variable that is not among the model's, so no optimizer made from them trains it.
    NotInMap {
        /// The variable, which has no name.
        node: Node,
    },
    /// A node of another floating point type than the model's, such as a cast to f32 and back.
    OtherDType {
        /// The node.
        node: Node,
        /// The model's type.
        expected: DType,
    },
    /// The backward pass returned an error or panicked.
    BackwardFailed {
        /// What it said.
        message: String,
    },
    /// The loss depends on the variable, and the backward pass gave it no gradient.
    MissingGradient {
        /// The variable.
        name: String,
    },
    /// All elements of a gradient are zero.
    ZeroGradient {
        /// The variable.
        name: String,
    },
    /// A gradient holds NaN or infinity.
    NonFiniteGradient {
        /// The variable.
        name: String,
        /// How many elements are not finite.
        count: usize,
        /// How many elements there are.
        total: usize,
    },
    /// A gradient of another shape than its variable.
    GradientShape {
        /// The variable.
        name: String,
        /// The variable's shape.
        expected: Vec<usize>,
        /// The gradient's shape.
        got: Vec<usize>,
    },
    /// A gradient of another element type than its variable.
    GradientDType {
        /// The variable.
        name: String,
        /// The variable's type.
        expected: DType,
        /// The gradient's type.
        got: DType,
    },
    /// A variable holds only zeros.
    OnlyZeros {
        /// The variable.
        name: String,
    },
    /// A variable holds NaN or infinity.
    NonFiniteValue {
        /// The variable.
        name: String,
        /// How many elements are not finite.
        count: usize,
        /// How many elements there are.
        total: usize,
    },
    /// Setting the variable doesn't change the output: something made from it was kept.
    Stale {
        /// The variable.
        name: String,
    },
    /// An optimizer step left the variable as it was.
    NotMoved {
        /// The variable.
        name: String,
    },
    /// An optimizer step changed a variable that is to stay as it is.
    FrozenMoved {
        /// The variable.
        name: String,
    },
    /// A small change of a variable doesn't show in the loss as its slope says: something rounds on the way.
    LostPrecision {
        /// The variable.
        name: String,
        /// The change of the loss that the slope foretells.
        expected: f64,
        /// The change that came.
        got: f64,
    },
    /// The loss depends on the variable too little for its precision to be told.
    Insensitive {
        /// The variable.
        name: String,
    },
    /// Another layout of the same values gives other results.
    LayoutChangesValues {
        /// The input.
        input: String,
        /// Its layout.
        layout: Layout,
        /// The largest difference.
        difference: f64,
        /// The largest result.
        scale: f64,
    },
}

impl Finding {
    /// The variable or input at fault, where it has a name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::NoGraph | Self::BackwardFailed { .. } => None,
            Self::NotInMap { node } | Self::OtherDType { node, .. } => node.name.as_deref(),
            Self::LayoutChangesValues { input, .. } => Some(input),
            Self::Absent { name, .. }
            | Self::Surplus { name, .. }
            | Self::VariableShape { name, .. }
            | Self::NotReached { name }
            | Self::MissingGradient { name }
            | Self::ZeroGradient { name }
            | Self::NonFiniteGradient { name, .. }
            | Self::GradientShape { name, .. }
            | Self::GradientDType { name, .. }
            | Self::OnlyZeros { name }
            | Self::NonFiniteValue { name, .. }
            | Self::Stale { name }
            | Self::NotMoved { name }
            | Self::FrozenMoved { name }
            | Self::LostPrecision { name, .. }
            | Self::Insensitive { name } => Some(name),
        }
    }

    /// What is wrong, the same text for every fault of a kind.
    #[must_use]
    pub fn fault(&self) -> &'static str {
        match self {
            Self::NoGraph => "the loss has no graph: it depends on no variable",
            Self::Absent { .. } => "expected, but no variable of the model (a plain tensor, or another name)",
            Self::Surplus { .. } => "a variable of the model, but not expected",
            Self::VariableShape { .. } => "has another shape than expected",
            Self::NotReached { .. } => {
                "not reached from the loss (detached, cut by an operation without backward, or unused)"
            }
            Self::NotInMap { .. } => "reached from the loss, but not among the model's variables, so nothing trains it",
            Self::OtherDType { .. } => "of another element type than the model",
            Self::BackwardFailed { .. } => "the backward pass failed",
            Self::MissingGradient { .. } => "got no gradient, though the loss depends on it",
            Self::ZeroGradient { .. } => "got a gradient of zeros only",
            Self::NonFiniteGradient { .. } => "got a gradient with NaN or infinity",
            Self::GradientShape { .. } => "got a gradient of another shape",
            Self::GradientDType { .. } => "got a gradient of another element type",
            Self::OnlyZeros { .. } => "holds only zeros, so it was made without initial values",
            Self::NonFiniteValue { .. } => "holds NaN or infinity",
            Self::Stale { .. } => {
                "changes nothing when it's set: a value made from it was kept, or what it leads to is zero"
            }
            Self::NotMoved { .. } => "not changed by the optimizer's step",
            Self::FrozenMoved { .. } => "to stay as it is, but changed by the optimizer's step",
            Self::LostPrecision { .. } => "a small change doesn't show in the loss: something rounds on the way",
            Self::Insensitive { .. } => "the loss depends on it too little for its precision to be told",
            Self::LayoutChangesValues { .. } => "gives other results for the same values in another layout",
        }
    }

    /// The name or place, and the numbers that belong to it; empty where there are none.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::NoGraph => String::new(),
            Self::BackwardFailed { message } => message.clone(),
            Self::NotInMap { node } => node.to_string(),
            Self::OtherDType { node, expected } => format!("{node} (not {})", expected.as_str()),
            Self::Absent { name, shape: dims } | Self::Surplus { name, shape: dims } => {
                format!("{name} {}", shape(dims))
            }
            Self::VariableShape { name, expected, got } | Self::GradientShape { name, expected, got } => {
                format!("{name} {} (not {})", shape(got), shape(expected))
            }
            Self::GradientDType { name, expected, got } => {
                format!("{name} {} (not {})", got.as_str(), expected.as_str())
            }
            Self::NonFiniteGradient { name, count, total } | Self::NonFiniteValue { name, count, total } => {
                format!("{name} ({count} of {total})")
            }
            Self::LostPrecision { name, expected, got } => format!("{name} ({got:.3e} instead of {expected:.3e})"),
            Self::LayoutChangesValues { input, layout, difference, scale } => {
                format!("{input} {layout} (off by {difference:.3e}, values up to {scale:.3e})")
            }
            Self::NotReached { name }
            | Self::MissingGradient { name }
            | Self::ZeroGradient { name }
            | Self::OnlyZeros { name }
            | Self::Stale { name }
            | Self::NotMoved { name }
            | Self::FrozenMoved { name }
            | Self::Insensitive { name } => name.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        if place.is_empty() { f.write_str(self.fault()) } else { write!(f, "{}: {place}", self.fault()) }
    }
}
