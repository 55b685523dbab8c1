//! The recurrence over chunks: what each chunk starts from.

use candle_core::Tensor;

use crate::error::Result;
use crate::ops::{matmul, segment_decay, suffix_decay};

/// Chunks that are carried over by one product; longer sequences go through levels of such blocks.
const BLOCK: usize = 32;

/// States `S_c = exp(a_c)·S_{c−1} + added_c` of independent rows, with `S_{−1}` the initial one.
///
/// a (rows, nchunks), added (rows, nchunks, width), initial (rows, 1, width) -> the states before each chunk (rows,
/// nchunks, width) and the last one (rows, 1, width). The graph's depth grows with the logarithm of nchunks: Candle walks
/// and frees graphs by recursion, so a loop over chunks would overflow the stack.
pub(super) fn carry(a: &Tensor, added: &Tensor, initial: &Tensor) -> Result<(Tensor, Tensor)> {
    let (rows, nchunks, width) = added.dims3()?;
    if nchunks <= BLOCK {
        return carry_block(a, added, initial);
    }
    let nblocks = nchunks.div_ceil(BLOCK);
    let padding = nblocks * BLOCK - nchunks; // chunks of a = 0 that add nothing
    let a = a.pad_with_zeros(1, 0, padding)?.reshape((rows * nblocks, BLOCK))?;
    let added = added.pad_with_zeros(1, 0, padding)?.reshape((rows * nblocks, BLOCK, width))?;

    let to_end = suffix_decay(&a)?.unsqueeze(1)?; // (rows * nblocks, 1, BLOCK)
    let block_added = matmul(&to_end, &added)?.reshape((rows, nblocks, width))?;
    let block_a = a.sum(1)?.reshape((rows, nblocks))?;
    let (starts, last) = carry(&block_a, &block_added, initial)?;

    let starts = starts.reshape((rows * nblocks, 1, width))?;
    let (before, _) = carry_block(&a, &added, &starts)?;
    let before = before.reshape((rows, nblocks * BLOCK, width))?.narrow(1, 0, nchunks)?;
    Ok((before.contiguous()?, last))
}

/// The same by one product with the decays between all pairs of chunks.
fn carry_block(a: &Tensor, added: &Tensor, initial: &Tensor) -> Result<(Tensor, Tensor)> {
    let nchunks = added.dim(1)?;
    // The initial state is what a chunk in front adds.
    let decay = segment_decay(&a.pad_with_zeros(1, 1, 0)?)?; // (rows, nchunks + 1, nchunks + 1)
    let states = matmul(&decay, &Tensor::cat(&[initial, added], 1)?)?;
    Ok((states.narrow(1, 0, nchunks)?.contiguous()?, states.narrow(1, nchunks, 1)?.contiguous()?))
}
