//! Gradients of variables, handed over as they are: Candle would add each to a tensor of zeros made for it.

use std::cell::RefCell;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, TensorId};

type Offered = Vec<(TensorId, Tensor)>;

thread_local! {
    static SINK: RefCell<Option<Offered>> = const { RefCell::new(None) };
}

/// `objective.backward()`, with gradients of variables passed beside the graph where operations [`offer`] them.
pub(crate) fn backward(objective: &Tensor) -> Result<GradStore> {
    struct Restore(Option<Offered>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SINK.with(|sink| *sink.borrow_mut() = self.0.take());
        }
    }
    let restore = Restore(SINK.with(|sink| sink.borrow_mut().replace(Vec::new())));
    let grads = objective.backward();
    let offered = SINK.with(|sink| sink.borrow_mut().take()).unwrap_or_default();
    drop(restore);
    let mut grads = grads?;
    for (variable, gradient) in offered {
        let sum = match grads.get_id(variable) {
            Some(other) => other.add(&gradient)?,
            None => gradient,
        };
        grads.insert_id(variable, sum);
    }
    Ok(grads)
}

/// The gradient of a variable, taken by the [`backward`] that runs on this thread; where none does, it is given back for Candle.
pub(super) fn offer(variable: &Tensor, gradient: Tensor) -> Result<Option<Tensor>> {
    SINK.with(|sink| match sink.borrow_mut().as_mut() {
        Some(offered) => {
            offered.push((variable.id(), gradient));
            Ok(None)
        }
        None => Ok(Some(gradient)),
    })
}
