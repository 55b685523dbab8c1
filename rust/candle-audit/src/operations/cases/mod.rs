//! The operations that a sequence model meets.

mod elementwise;
mod indexing;
mod losses;
mod norms;
mod products;
mod reductions;
mod shaping;

use super::case::Case;

pub(super) fn all() -> Vec<Case> {
    let groups = [
        products::cases(),
        elementwise::cases(),
        reductions::cases(),
        norms::cases(),
        shaping::cases(),
        indexing::cases(),
        losses::cases(),
    ];
    groups.into_iter().flatten().collect()
}
