//! Matrix products, layers made of them, and convolutions.

use candle_nn::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Linear, Module};

use super::super::array::Array;
use super::super::case::{Case, Input};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "matmul",
            |batch| vec![Input::new("lhs", [batch, 3, 4]), Input::new("rhs", [batch, 4, 2])],
            |x| x[0].matmul(&x[1]),
            |x| product(&x[0], &x[1]),
        ),
        Case::new(
            "matmul, 4 dimensions",
            |batch| vec![Input::new("lhs", [batch, 2, 3, 4]), Input::new("rhs", [batch, 2, 4, 2])],
            |x| x[0].matmul(&x[1]),
            |x| product(&x[0], &x[1]),
        ),
        Case::new(
            "matmul, rhs broadcast over the batch",
            |batch| vec![Input::new("lhs", [batch, 3, 4]), Input::new("rhs", [4, 2])],
            |x| x[0].matmul(&x[1].broadcast_left(x[0].dim(0)?)?),
            |x| product(&x[0], &x[1]),
        ),
        Case::new(
            "broadcast_matmul",
            |batch| vec![Input::new("lhs", [batch, 3, 4]), Input::new("rhs", [4, 2])],
            |x| x[0].broadcast_matmul(&x[1]),
            |x| product(&x[0], &x[1]),
        ),
        Case::new(
            "Linear",
            |batch| {
                let weight = Input::new("weight", [2, 4]);
                vec![Input::new("x", [batch, 3, 4]), weight, Input::new("bias", [2]).always_contiguous()]
            },
            |x| Linear::new(x[1].clone(), Some(x[2].clone())).forward(&x[0]),
            |x| {
                let (rows, cols) = (x[0].dims[1], x[1].dims[0]);
                Array::from_fn([x[0].dims[0], rows, cols], |i| {
                    let products = (0..x[1].dims[1]).map(|k| x[0].at(&[i[0], i[1], k]) * x[1].at(&[i[2], k]));
                    products.sum::<f64>() + x[2].at(&[i[2]])
                })
            },
        ),
        conv1d_case("conv1d", [3, 2], 7, 3, SAME),
        conv1d_case("conv1d, no padding", [3, 2], 7, 3, How { padding: 0, ..SAME }),
        conv1d_case("conv1d, 1 output channel", [3, 1], 7, 3, SAME),
        conv1d_case("conv1d, stride 2", [2, 2], 8, 3, How { stride: 2, ..SAME }),
        conv1d_case("conv1d, dilation 2", [2, 2], 8, 2, How { dilation: 2, ..SAME }),
        conv1d_case("conv1d, 2 groups", [4, 4], 7, 3, How { groups: 2, ..SAME }),
        conv1d_case("conv1d, depthwise", [3, 3], 6, 3, How { padding: 2, groups: 3, ..SAME }),
        Case::new(
            "Conv1d",
            |batch| {
                let weight = Input::new("weight", [2, 3, 3]).always_contiguous();
                vec![Input::new("x", [batch, 3, 7]), weight, Input::new("bias", [2]).always_contiguous()]
            },
            |x| {
                let config = Conv1dConfig { padding: 1, ..Conv1dConfig::default() };
                Conv1d::new(x[1].clone(), Some(x[2].clone()), config).forward(&x[0])
            },
            |x| {
                let y = conv1d(&x[0], &x[1], SAME);
                Array::from_fn(y.dims.clone(), |i| y.at(i) + x[2].at(&[i[1]]))
            },
        ),
        Case::new(
            "conv_transpose1d",
            |batch| vec![Input::new("x", [batch, 2, 4]), Input::new("kernel", [2, 3, 3])],
            |x| x[0].conv_transpose1d(&x[1], 0, 0, 1, 1, 1),
            |x| {
                let (length, taps) = (x[0].dims[2], x[1].dims[2]);
                Array::from_fn([x[0].dims[0], x[1].dims[1], length + taps - 1], |i| {
                    let channels = (0..x[0].dims[1]).flat_map(|c| (0..taps).map(move |k| (c, k)));
                    let inside = channels.filter(|(_, k)| i[2] >= *k && i[2] - k < length);
                    inside.map(|(c, k)| x[0].at(&[i[0], c, i[2] - k]) * x[1].at(&[c, i[1], k])).sum()
                })
            },
        ),
        Case::new(
            "Conv2d",
            |batch| {
                let weight = Input::new("weight", [2, 2, 3, 3]).always_contiguous();
                vec![Input::new("x", [batch, 2, 4, 5]), weight]
            },
            |x| {
                let config = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
                Conv2d::new(x[1].clone(), None, config).forward(&x[0])
            },
            conv2d,
        ),
    ]
}

/// (batch, rows, inner) by (batch, inner, cols), or (inner, cols) for all.
fn product(lhs: &Array, rhs: &Array) -> Array {
    let (rank, inner) = (lhs.dims.len(), lhs.dims[lhs.dims.len() - 1]);
    let mut dims = lhs.dims.clone();
    dims[rank - 1] = rhs.dims[rhs.dims.len() - 1];
    Array::from_fn(dims, |i| {
        let (mut left, mut right) = (i.to_vec(), i.to_vec());
        let mut sum = 0.0;
        for k in 0..inner {
            left[rank - 1] = k;
            right[rank - 2] = k;
            sum += lhs.at(&left) * rhs.stretched(&right);
        }
        sum
    })
}

/// A convolution's padding, stride, dilation and groups.
#[derive(Clone, Copy)]
struct How {
    padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
}

const SAME: How = How { padding: 1, stride: 1, dilation: 1, groups: 1 };

/// `channels` in and out, `length` of the input, `taps` of the kernel.
fn conv1d_case(name: &'static str, channels: [usize; 2], length: usize, taps: usize, how: How) -> Case {
    let [from, to] = channels;
    let How { padding, stride, dilation, groups } = how;
    Case::new(
        name,
        move |batch| vec![Input::new("x", [batch, from, length]), Input::new("kernel", [to, from / groups, taps])],
        move |x| x[0].conv1d(&x[1], padding, stride, dilation, groups),
        move |x| conv1d(&x[0], &x[1], how),
    )
}

/// x (batch, channels, length), kernel (channels out, channels of a group, taps).
fn conv1d(x: &Array, kernel: &Array, how: How) -> Array {
    let [to, per_group, taps] = [kernel.dims[0], kernel.dims[1], kernel.dims[2]];
    let length = x.dims[2];
    let output = (length + 2 * how.padding - how.dilation * (taps - 1) - 1) / how.stride + 1;
    Array::from_fn([x.dims[0], to, output], |i| {
        let group = i[1] / (to / how.groups);
        let mut sum = 0.0;
        for c in 0..per_group {
            for k in 0..taps {
                let padded = i[2] * how.stride + k * how.dilation;
                if padded >= how.padding && padded - how.padding < length {
                    sum += x.at(&[i[0], group * per_group + c, padded - how.padding]) * kernel.at(&[i[1], c, k]);
                }
            }
        }
        sum
    })
}

/// x (batch, channels, height, width), weight (channels out, channels, 3, 3), a border of one zero.
fn conv2d(x: &[Array]) -> Array {
    let (x, weight) = (&x[0], &x[1]);
    let (height, width) = (x.dims[2], x.dims[3]);
    Array::from_fn([x.dims[0], weight.dims[0], height, width], |i| {
        let mut sum = 0.0;
        for c in 0..x.dims[1] {
            for (row, col) in (0..3).flat_map(|row| (0..3).map(move |col| (row, col))) {
                let (down, right) = (i[2] + row, i[3] + col);
                if (1..=height).contains(&down) && (1..=width).contains(&right) {
                    sum += x.at(&[i[0], c, down - 1, right - 1]) * weight.at(&[i[1], c, row, col]);
                }
            }
        }
        sum
    })
}
