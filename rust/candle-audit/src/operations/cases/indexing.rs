//! Operations that pick and place elements by index.

use candle_nn::{Embedding, Module};

use super::super::array::Array;
use super::super::case::{Case, Input, Values};

/// Places along a dimension of 4, twice the same one in each line.
const PLACES: Values = Values::Fixed(&[2, 0, 3, 1, 2, 0, 0, 1, 3]);

pub(super) fn cases() -> Vec<Case> {
    let scattered = |batch| {
        let ids = Input::new("ids", [batch, 3, 3]).holding(PLACES);
        vec![Input::new("x", [batch, 4, 3]), ids, Input::new("src", [batch, 3, 3])]
    };
    let once = |batch| {
        let ids = Input::new("ids", [batch, 2, 3]).holding(Values::Fixed(&[2, 0, 3, 1, 2, 0]));
        vec![Input::new("x", [batch, 4, 3]), ids, Input::new("src", [batch, 2, 3])]
    };
    vec![
        Case::new(
            "Embedding",
            |batch| {
                let ids = Input::new("ids", [batch, 5]).holding(Values::Ids(4));
                vec![Input::new("weight", [4, 3]).always_contiguous(), ids]
            },
            |x| Embedding::new(x[0].clone(), 3).forward(&x[1]),
            |x| Array::from_fn([x[1].dims[0], 5, 3], |i| x[0].at(&[x[1].id(&[i[0], i[1]]), i[2]])),
        ),
        Case::new(
            "gather",
            |batch| vec![Input::new("x", [batch, 4, 3]), Input::new("ids", [batch, 3, 3]).holding(PLACES)],
            |x| x[0].gather(&x[1], 1),
            |x| Array::from_fn(x[1].dims.clone(), |i| x[0].at(&[i[0], x[1].id(i), i[2]])),
        ),
        Case::new(
            "index_select",
            |batch| vec![Input::new("x", [batch, 4, 3]), Input::new("ids", [5]).holding(PLACES)],
            |x| x[0].index_select(&x[1], 1),
            |x| Array::from_fn([x[0].dims[0], 5, 3], |i| x[0].at(&[i[0], x[1].id(&[i[1]]), i[2]])),
        ),
        Case::new(
            "index_add",
            |batch| {
                let ids = Input::new("ids", [5]).holding(PLACES);
                vec![Input::new("x", [batch, 4, 3]), ids, Input::new("src", [batch, 5, 3])]
            },
            |x| x[0].index_add(&x[1], &x[2], 1),
            |x| {
                Array::from_fn(x[0].dims.clone(), |i| {
                    let sources = (0..5).filter(|at| x[1].id(&[*at]) == i[1]);
                    x[0].at(i) + sources.map(|at| x[2].at(&[i[0], at, i[2]])).sum::<f64>()
                })
            },
        ),
        Case::new(
            "scatter",
            once,
            |x| x[0].scatter(&x[1], &x[2], 1),
            |x| Array::from_fn(x[0].dims.clone(), |i| placed(x, i).last().copied().unwrap_or_else(|| x[0].at(i))),
        ),
        Case::new(
            "scatter_add",
            scattered,
            |x| x[0].scatter_add(&x[1], &x[2], 1),
            |x| Array::from_fn(x[0].dims.clone(), |i| x[0].at(i) + placed(x, i).iter().sum::<f64>()),
        ),
        Case::new(
            "scatter_add, a source for each place",
            |batch| {
                let ids = Input::new("ids", [batch, 4, 3]).holding(PLACES);
                vec![Input::new("x", [batch, 4, 3]), ids, Input::new("src", [batch, 4, 3])]
            },
            |x| x[0].scatter_add(&x[1], &x[2], 1),
            |x| Array::from_fn(x[0].dims.clone(), |i| x[0].at(i) + placed(x, i).iter().sum::<f64>()),
        ),
        Case::new(
            "where_cond",
            |batch| {
                let mask = Input::new("mask", [batch, 3, 4]).holding(Values::Mask);
                vec![mask, Input::new("on_true", [batch, 3, 4]), Input::new("on_false", [batch, 3, 4])]
            },
            |x| x[0].where_cond(&x[1], &x[2]),
            |x| Array::from_fn(x[0].dims.clone(), |i| if x[0].at(i) == 0.0 { x[2].at(i) } else { x[1].at(i) }),
        ),
        Case::new(
            "get",
            |batch| vec![Input::new("x", [batch, 3, 4])],
            |x| x[0].get_on_dim(1, 2),
            |x| Array::from_fn([x[0].dims[0], 4], |i| x[0].at(&[i[0], 2, i[1]])),
        ),
    ]
}

/// What x[2] places at `i`, by the indices x[1] along dimension 1.
fn placed(x: &[Array], i: &[usize]) -> Vec<f64> {
    let sources = (0..x[1].dims[1]).map(|at| [i[0], at, i[2]]);
    sources.filter(|source| x[1].id(source) == i[1]).map(|source| x[2].at(&source)).collect()
}
