//! What Candle's graph tells: the nodes that lead to a loss, and a backward pass whose panics are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::Tensor;
use candle_core::backprop::GradStore;

use crate::finding::Node;
use crate::variables::Variables;

/// The nodes on the way from variables to a tensor, in the order of the forward pass. Integer tensors and what is made of
/// constants alone are not among them.
pub(crate) struct Graph<'a>(Vec<&'a Tensor>);

impl<'a> Graph<'a> {
    pub(crate) fn of(loss: &'a Tensor) -> Self {
        let mut nodes = loss.sorted_nodes();
        nodes.reverse();
        Self(nodes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn reaches(&self, tensor: &Tensor) -> bool {
        self.0.iter().any(|node| node.id() == tensor.id())
    }

    /// The nodes, described.
    pub(crate) fn nodes(&self, variables: &Variables) -> impl Iterator<Item = (&'a Tensor, Node)> {
        let total = self.0.len();
        self.0.iter().enumerate().map(move |(at, &node)| {
            let name = variables.name_of(node.id()).map(str::to_owned);
            let (shape, dtype) = (node.dims().to_vec(), node.dtype());
            (node, Node { position: at + 1, total, shape, dtype, name })
        })
    }
}

/// Candle's backward pass. Where an operation leaves out the gradient of an operand it panics; that is an error here.
pub(crate) fn backward(loss: &Tensor) -> Result<GradStore, String> {
    guard(|| loss.backward())
}

/// Runs Candle's code; its errors, without backtraces, and its panics become messages.
pub(crate) fn guard<T>(run: impl FnOnce() -> candle_core::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(crate::Error::from(error).to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Err(format!("panicked: {}", text.unwrap_or_else(|| "without a message".to_owned())))
        }
    }
}
