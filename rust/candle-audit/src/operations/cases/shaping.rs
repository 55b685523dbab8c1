//! Operations that move elements without changing them.

use candle_core::{D, Tensor};

use super::super::array::Array;
use super::super::case::{Case, Input};

#[allow(clippy::too_many_lines)] // a table
pub(super) fn cases() -> Vec<Case> {
    let x = |batch| vec![Input::new("x", [batch, 3, 4])];
    vec![
        Case::new("transpose", x, |x| x[0].transpose(1, 2), |x| moved(&x[0], [0, 2, 1])),
        Case::new("permute", x, |x| x[0].permute((2, 0, 1)), |x| moved(&x[0], [2, 0, 1])),
        Case::new("reshape", x, |x| x[0].reshape((x[0].dim(0)?, 2, 6)), |x| shaped(&x[0], vec![x[0].dims[0], 2, 6])),
        Case::new("flatten", x, |x| x[0].flatten_from(1), |x| shaped(&x[0], vec![x[0].dims[0], 12])),
        Case::new("contiguous", x, |x| x[0].contiguous(), |x| x[0].clone()),
        Case::new("unsqueeze and squeeze", x, |x| x[0].unsqueeze(1)?.squeeze(1), |x| x[0].clone()),
        Case::new(
            "broadcast_as",
            |batch| vec![Input::new("x", [batch, 1, 4])],
            |x| x[0].broadcast_as((x[0].dim(0)?, 3, 4)),
            |x| Array::from_fn([x[0].dims[0], 3, 4], |i| x[0].stretched(i)),
        ),
        Case::new(
            "repeat",
            x,
            |x| x[0].repeat((1, 2, 1)),
            |x| Array::from_fn([x[0].dims[0], 6, 4], |i| x[0].at(&[i[0], i[1] % 3, i[2]])),
        ),
        Case::new(
            "narrow",
            x,
            |x| x[0].narrow(1, 1, 2),
            |x| Array::from_fn([x[0].dims[0], 2, 4], |i| x[0].at(&[i[0], i[1] + 1, i[2]])),
        ),
        Case::new(
            "narrow, last dimension",
            x,
            |x| x[0].narrow(D::Minus1, 1, 2),
            |x| Array::from_fn([x[0].dims[0], 3, 2], |i| x[0].at(&[i[0], i[1], i[2] + 1])),
        ),
        Case::new(
            "chunk",
            x,
            |x| x[0].chunk(2, D::Minus1)?[1].contiguous(),
            |x| Array::from_fn([x[0].dims[0], 3, 2], |i| x[0].at(&[i[0], i[1], i[2] + 2])),
        ),
        cat("cat", 1),
        cat("cat, last dimension", 2),
        Case::new(
            "stack",
            |batch| ["a", "b"].map(|name| Input::new(name, [batch, 3])).to_vec(),
            |x| Tensor::stack(x, 1),
            |x| Array::from_fn([x[0].dims[0], 2, 3], |i| x[i[1]].at(&[i[0], i[2]])),
        ),
        Case::new(
            "pad_with_zeros",
            x,
            |x| x[0].pad_with_zeros(1, 2, 1),
            |x| {
                let inside = |i: &[usize]| (2..5).contains(&i[1]);
                Array::from_fn([x[0].dims[0], 6, 4], |i| if inside(i) { x[0].at(&[i[0], i[1] - 2, i[2]]) } else { 0.0 })
            },
        ),
        Case::new(
            "pad_with_same",
            x,
            |x| x[0].pad_with_same(1, 2, 1),
            |x| Array::from_fn([x[0].dims[0], 6, 4], |i| x[0].at(&[i[0], i[1].clamp(2, 4) - 2, i[2]])),
        ),
        Case::new(
            "flip",
            x,
            |x| x[0].flip(&[1]),
            |x| Array::from_fn(x[0].dims.clone(), |i| x[0].at(&[i[0], 2 - i[1], i[2]])),
        ),
        Case::new(
            "roll",
            x,
            |x| x[0].roll(1, 1),
            |x| Array::from_fn(x[0].dims.clone(), |i| x[0].at(&[i[0], (i[1] + 2) % 3, i[2]])),
        ),
        Case::new(
            "unfold, windows apart",
            |batch| vec![Input::new("x", [batch, 2, 6])],
            |x| x[0].unfold(2, 2, 2),
            |x| Array::from_fn([x[0].dims[0], 2, 3, 2], |i| x[0].at(&[i[0], i[1], 2 * i[2] + i[3]])),
        ),
        Case::new(
            "unfold, windows overlap",
            |batch| vec![Input::new("x", [batch, 2, 4])],
            |x| x[0].unfold(2, 3, 1),
            |x| Array::from_fn([x[0].dims[0], 2, 2, 3], |i| x[0].at(&[i[0], i[1], i[2] + i[3]])),
        ),
        Case::new(
            "upsample_nearest1d",
            x,
            |x| x[0].upsample_nearest1d(8),
            |x| Array::from_fn([x[0].dims[0], 3, 8], |i| x[0].at(&[i[0], i[1], i[2] / 2])),
        ),
        Case::new(
            "upsample_nearest1d, input used twice",
            x,
            |x| {
                let twice = x[0].upsample_nearest1d(8)?;
                twice.add(&Tensor::cat(&[&x[0], &x[0]], 2)?)
            },
            |x| {
                Array::from_fn([x[0].dims[0], 3, 8], |i| {
                    x[0].at(&[i[0], i[1], i[2] / 2]) + x[0].at(&[i[0], i[1], i[2] % 4])
                })
            },
        ),
        Case::new(
            "slice_scatter",
            |batch| vec![Input::new("x", [batch, 4, 3]), Input::new("src", [batch, 2, 3])],
            |x| x[0].slice_scatter(&x[1], 1, 1),
            |x| {
                let replaced = |i: &[usize]| (1..3).contains(&i[1]);
                let dims = x[0].dims.clone();
                Array::from_fn(dims, |i| if replaced(i) { x[1].at(&[i[0], i[1] - 1, i[2]]) } else { x[0].at(i) })
            },
        ),
        Case::new(
            "slice_assign",
            |batch| vec![Input::new("x", [batch, 4, 3]), Input::new("src", [batch, 2, 3])],
            |x| x[0].slice_assign(&[0..x[0].dim(0)?, 1..3, 0..3], &x[1]),
            |x| {
                let replaced = |i: &[usize]| (1..3).contains(&i[1]);
                let dims = x[0].dims.clone();
                Array::from_fn(dims, |i| if replaced(i) { x[1].at(&[i[0], i[1] - 1, i[2]]) } else { x[0].at(i) })
            },
        ),
    ]
}

fn moved(x: &Array, order: [usize; 3]) -> Array {
    Array::from_fn(order.map(|at| x.dims[at]), |i| {
        let mut from = [0; 3];
        order.iter().zip(i).for_each(|(at, i)| from[*at] = *i);
        x.at(&from)
    })
}

fn shaped(x: &Array, dims: Vec<usize>) -> Array {
    Array { dims, data: x.data.clone() }
}

/// Two tensors, one behind the other.
fn cat(name: &'static str, dim: usize) -> Case {
    let inputs = move |batch| {
        let mut longer = [batch, 3, 4];
        longer[dim] += 1;
        vec![Input::new("a", [batch, 3, 4]), Input::new("b", longer)]
    };
    let reference = move |x: &[Array]| {
        let (mut dims, first) = (x[0].dims.clone(), x[0].dims[dim]);
        dims[dim] += x[1].dims[dim];
        Array::from_fn(dims, |i| {
            let mut at = i.to_vec();
            if i[dim] < first {
                return x[0].at(&at);
            }
            at[dim] -= first;
            x[1].at(&at)
        })
    };
    Case::new(name, inputs, move |x| Tensor::cat(x, dim), reference)
}
