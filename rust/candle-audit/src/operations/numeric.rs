//! Gradients of the computations by hand, by finite differences.

use std::convert::Infallible;

use super::array::Array;
use super::case::Case;
use crate::differences::slope;

/// The slopes of Σ upstream · output along one way through the operands, from below and from above; equal where it's smooth.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slopes {
    pub low: f64,
    pub high: f64,
}

/// The step at kinks: the operations that meet some there are made of straight lines, so it has no error but rounding.
const ONE_SIDED: f64 = 1.0 / 4096.0;

pub(super) struct Numeric<'a> {
    pub case: &'a Case,
    pub inputs: &'a [Array],
    pub upstream: &'a Array,
}

impl Numeric<'_> {
    /// The slopes to each element of an operand.
    pub fn gradient(&self, operand: usize) -> Vec<Slopes> {
        (0..self.inputs[operand].data.len())
            .map(|at| self.along(|inputs, step| inputs[operand].data[at] += step))
            .collect()
    }

    /// The slopes where all elements of the chosen operands grow alike.
    pub fn together(&self, operands: &[usize]) -> Slopes {
        let grow = |inputs: &mut [Array], step: f64| {
            for &operand in operands {
                inputs[operand].data.iter_mut().for_each(|x| *x += step);
            }
        };
        self.along(grow)
    }

    fn along(&self, change: impl Fn(&mut [Array], f64)) -> Slopes {
        let at = |step: f64| {
            let mut inputs = self.inputs.to_vec();
            change(&mut inputs, step);
            let output = (self.case.reference)(&inputs);
            output.data.iter().zip(&self.upstream.data).map(|(y, dy)| y * dy).sum::<f64>()
        };
        if self.case.kinks {
            let here = at(0.0);
            let (above, below) = ((at(ONE_SIDED) - here) / ONE_SIDED, (here - at(-ONE_SIDED)) / ONE_SIDED);
            return Slopes { low: above.min(below), high: above.max(below) };
        }
        let Ok(found) = slope(1.0 / 64.0, |step| Ok::<_, Infallible>(at(step)));
        Slopes { low: found.value, high: found.value }
    }
}
