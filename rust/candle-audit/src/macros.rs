//! An audit as an assertion.

/// Panics unless every variable gets a gradient from the loss, with all that [`audit`](crate::audit()) finds in the message.
///
/// Options are the audit's own methods.
///
/// ```
/// use candle_audit::assert_trains;
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap};
///
/// # fn main() -> candle_core::Result<()> {
/// let varmap = VarMap::new();
/// let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
/// let layer = candle_nn::linear(3, 2, vb)?;
///
/// let loss = layer.forward(&Tensor::ones((1, 3), DType::F32, &Device::Cpu)?)?.sqr()?.mean_all()?;
/// assert_trains!(loss, varmap);
///
/// let loss = layer.forward(&Tensor::zeros((1, 3), DType::F32, &Device::Cpu)?)?.sqr()?.mean_all()?;
/// assert_trains!(loss, varmap, allowing_zero(["weight"]), expecting([("bias", vec![2]), ("weight", vec![2, 3])]));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_trains {
    ($loss:expr, $variables:expr $(, $option:ident($($argument:expr),*))* $(,)?) => {
        match $crate::audit(&$loss, &$variables)$(.$option($($argument),*))*.check() {
            ::core::result::Result::Ok(report) => report,
            ::core::result::Result::Err(error) => ::core::panic!("{error}"),
        }
    };
}

/// The README's example is a test as well.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
