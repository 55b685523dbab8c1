//! softplus, right to the last digits on the whole range.

use candle_core::{DType, Result, Tensor};

use super::with_gradient;

/// `ln(1 + exp(x))`, the identity above 20 as in torch's `F.softplus`. x f32 or f64, any shape.
///
/// The gradient is the logistic function of x, and 1 above 20.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    with_gradient("softplus", x, value(&x.detach())?, |x, _, upstream| {
        // exp(x)/(1 + exp(x)) keeps its digits as long as exp(x) has some, and is not needed where it overflows.
        let e = x.exp()?;
        let slope = x.gt(THRESHOLD)?.where_cond(&x.ones_like()?, &(&e / (&e + 1.0)?)?)?;
        upstream.mul(&slope)
    })
}

/// Above it, softplus is the identity.
const THRESHOLD: f64 = 20.0;

fn value(x: &Tensor) -> Result<Tensor> {
    // exp overflows only where the threshold picks x itself.
    x.gt(THRESHOLD)?.where_cond(x, &ln_1p(&x.exp()?)?)
}

/// `ln(1 + e)` for e ≥ 0.
///
/// With u the rounded 1 + e, ln(u)·e/(u − 1) is exact to a few ulp (Goldberg, "What every computer scientist should
/// know about floating-point arithmetic", theorem 4); where u is 1, the result is e itself.
fn ln_1p(e: &Tensor) -> Result<Tensor> {
    if e.device().is_cpu() {
        return match e.dtype() {
            DType::F32 => map::<f32>(e, f32::ln_1p),
            _ => map::<f64>(e, f64::ln_1p),
        };
    }
    let u = (e + 1.0)?;
    let rounded = (&u - 1.0)?;
    let unit = rounded.eq(0.0)?;
    let divisor = unit.where_cond(&rounded.ones_like()?, &rounded)?;
    unit.where_cond(e, &((u.log()? * e)? / divisor)?)
}

fn map<T: candle_core::WithDType>(x: &Tensor, f: impl Fn(T) -> T) -> Result<Tensor> {
    let values = x.flatten_all()?.to_vec1::<T>()?;
    Tensor::from_vec(values.into_iter().map(f).collect::<Vec<_>>(), x.shape(), x.device())
}
