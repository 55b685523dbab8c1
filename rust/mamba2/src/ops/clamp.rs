//! clamp with torch's gradient.

use candle_core::{Result, Tensor};

use super::with_gradient;

/// x, but at least `low` and at most `high`. NaN stays NaN.
///
/// The gradient is 1 at and inside the bounds, 0 outside, as in torch; Candle's own clamp halves it at a bound.
pub fn clamp(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let detached = x.detach();
    let bound = |limit: f64| Tensor::full(limit, (), x.device())?.to_dtype(x.dtype())?.broadcast_as(x.shape());
    let (floor, ceiling) = (bound(low)?, bound(high)?);
    let value = detached.lt(&floor)?.where_cond(&floor, &detached)?;
    let value = value.gt(&ceiling)?.where_cond(&ceiling, &value)?;
    with_gradient("clamp", x, value, move |x, _, upstream| {
        let inside = x.ge(&floor)?.mul(&x.le(&ceiling)?)?;
        inside.where_cond(upstream, &upstream.zeros_like()?)
    })
}
