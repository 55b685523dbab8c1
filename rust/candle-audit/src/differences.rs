//! Slopes by finite differences that say how far they may be off.

/// A slope and what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slope {
    pub value: f64,
    /// An estimate of the error: what extrapolation still changes, and the rounding of the function's values.
    pub error: f64,
    /// The largest magnitude that the function had.
    pub scale: f64,
}

/// How often the step is halved.
const ROWS: usize = 22;

/// Ridders' method (Computers in Software 1982, "Accurate computation of F'(x) and F'(x)F''(x)"): central differences with
/// steps that are halved, extrapolated to a step of zero. The best entry of the tableau is the one whose neighbours agree
/// best, once rounding is added. It begins anew behind values that are not finite.
pub(crate) fn slope<E>(first_step: f64, mut f: impl FnMut(f64) -> Result<f64, E>) -> Result<Slope, E> {
    let mut best = Slope { value: f64::NAN, error: f64::INFINITY, scale: 0.0 };
    let mut previous: Vec<f64> = Vec::new();
    let mut step = first_step;
    for _ in 0..ROWS {
        let (above, below) = (f(step)?, f(-step)?);
        let central = (above - below) / (2.0 * step);
        if !central.is_finite() {
            previous.clear();
            step /= 2.0;
            continue;
        }
        best.scale = best.scale.max(above.abs()).max(below.abs());
        let rounding = 4.0 * f64::EPSILON * best.scale / step;
        let mut row = vec![central];
        let mut power = 1.0;
        for &older in &previous {
            power *= 4.0;
            let newest = row[row.len() - 1];
            let next = (newest * power - older) / (power - 1.0);
            let error = (next - newest).abs().max((next - older).abs()) + rounding;
            if error < best.error {
                best = Slope { value: next, error, ..best };
            }
            row.push(next);
        }
        if rounding > best.error {
            break; // smaller steps only round more
        }
        previous = row;
        step /= 2.0;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::{Slope, slope};

    fn at(step: f64, f: impl Fn(f64) -> f64) -> Slope {
        slope(step, |t| Ok::<_, Infallible>(f(t))).unwrap()
    }

    #[test]
    fn errors_are_no_larger_than_estimated_and_small() {
        type Case = (&'static str, fn(f64) -> f64, f64);
        let cases: [Case; 5] = [
            ("exp", |t| (1.0 + t).exp(), std::f64::consts::E),
            ("a line", |t| 3.0 * t + 1e3, 3.0),
            ("a constant", |_| 7.0, 0.0),
            ("ln, negative at the first steps", |t| (0.01 + t).ln(), 100.0),
            ("a kink nearby", |t| (t - 1e-3).abs(), -1.0),
        ];
        for (what, f, want) in cases {
            let got = at(0.125, f);
            assert!((got.value - want).abs() <= 4.0 * got.error, "{what}: {got:?}");
            assert!(got.error <= 1e-9 * want.abs().max(1.0), "{what}: {got:?}");
        }
    }

    #[test]
    fn values_that_are_never_finite_leave_the_error_infinite() {
        assert!(at(0.1, |_| f64::NAN).error.is_infinite());
    }
}
