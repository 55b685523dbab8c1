//! One operation: its operands, Candle's way, and the same by hand.

use candle_core::{Result, Tensor};

use super::array::Array;
use crate::values::noise;

/// What an operand holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Values {
    /// Random floating point numbers in a range.
    Floats(f64, f64),
    /// These floating point numbers over and over: equal ones make ties.
    Repeated(&'static [f64]),
    /// Random u32 below a bound.
    Ids(u32),
    /// These u32 over and over.
    Fixed(&'static [u32]),
    /// 0 and 1 in turn, as u8.
    Mask,
}

/// One operand.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub name: &'static str,
    pub dims: Vec<usize>,
    pub values: Values,
    /// Whether it is given as a view, too. Parameters of layers hardly ever are.
    pub views: bool,
}

impl Input {
    /// An operand of random floats in ±1, also given as a view.
    pub fn new(name: &'static str, dims: impl Into<Vec<usize>>) -> Self {
        Self { name, dims: dims.into(), values: Values::Floats(-1.0, 1.0), views: true }
    }

    pub fn holding(self, values: Values) -> Self {
        let views = self.views && matches!(values, Values::Floats(..));
        Self { values, views, ..self }
    }

    pub fn always_contiguous(self) -> Self {
        Self { views: false, ..self }
    }

    pub fn is_float(&self) -> bool {
        matches!(self.values, Values::Floats(..) | Values::Repeated(_))
    }

    /// Its values, which f32 can hold. Random ones keep away from zero, where many operations have a kink.
    #[allow(clippy::cast_possible_truncation)] // to what f32 holds, and whole numbers below u32's bound
    pub fn array(&self, seed: &str) -> Array {
        let count = self.dims.iter().product();
        let cycle = |values: &[f64]| values.iter().copied().cycle().take(count).collect();
        let data = match self.values {
            Values::Floats(low, high) => {
                let raw = noise(0, &format!("{seed} {}", self.name), low, high, count);
                let away = |x: f64| if x.abs() < 0.03 { 0.03_f64.copysign(x) } else { x };
                raw.into_iter().map(|x| f64::from(away(x) as f32)).collect()
            }
            Values::Repeated(values) => cycle(values),
            Values::Ids(bound) => {
                let raw = noise(0, &format!("{seed} {}", self.name), 0.0, f64::from(bound), count);
                raw.into_iter().map(f64::floor).collect()
            }
            Values::Fixed(ids) => ids.iter().map(|id| f64::from(*id)).cycle().take(count).collect(),
            Values::Mask => cycle(&[1.0, 0.0, 0.0, 1.0, 1.0]),
        };
        Array { dims: self.dims.clone(), data }
    }
}

/// Candle's way.
type Forward = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The same by hand.
type ByHand = dyn Fn(&[Array]) -> Array;

/// One operation.
pub(super) struct Case {
    pub name: &'static str,
    /// The operands for a batch size.
    pub inputs: Box<dyn Fn(usize) -> Vec<Input>>,
    pub forward: Box<Forward>,
    pub reference: Box<ByHand>,
    /// Whether the operands meet kinks: gradients are right if they're subgradients.
    pub kinks: bool,
}

impl Case {
    pub fn new(
        name: &'static str,
        inputs: impl Fn(usize) -> Vec<Input> + 'static,
        forward: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
        reference: impl Fn(&[Array]) -> Array + 'static,
    ) -> Self {
        let (inputs, forward, reference) = (Box::new(inputs), Box::new(forward), Box::new(reference));
        Self { name, inputs, forward, reference, kinks: false }
    }

    pub fn at_kinks(self) -> Self {
        Self { kinks: true, ..self }
    }
}
