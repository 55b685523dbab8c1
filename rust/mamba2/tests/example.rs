//! The example trains: no gradient is missing, and the task is learnt.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

#[allow(dead_code)] // its `main`
#[path = "../examples/train.rs"]
mod example;

#[test]
fn the_example_learns_its_task() {
    let loss = example::train().unwrap();
    assert!(loss < 0.03, "guessing gives 0.33, the example came to {loss}");
}
