//! Matrix products that every device takes.

use candle_core::{Layout, Result, Tensor, bail};

/// `a·b`: (…, m, k)·(…, k, n) -> (…, m, n).
///
/// # Errors
/// Operands that CUDA would refuse, on a CPU as well, so that what works here works there: matrices must be packed, row by row
/// or column by column, and batches evenly spaced. Their gradients are: Candle adds each to zeros of its own.
#[allow(clippy::disallowed_methods)] // this is what all others go through
pub(crate) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    for operand in [a, b] {
        if !packed(operand.layout()) {
            let (shape, stride) = (operand.shape(), operand.stride());
            bail!("matmul takes packed matrices, got shape {shape:?} with strides {stride:?}");
        }
    }
    a.matmul(b)
}

/// Whether cuBLAS can be told of it: Candle's `gemm_config`.
fn packed(layout: &Layout) -> bool {
    let (dims, stride) = (layout.dims(), layout.stride());
    let rank = dims.len();
    if rank < 2 {
        return false;
    }
    let (rows, columns) = (dims[rank - 2], dims[rank - 1]);
    let (row, column) = (stride[rank - 2], stride[rank - 1]);
    let by_rows = (column == 1 || columns == 1) && (row == columns || rows == 1);
    let by_columns = (row == 1 || rows == 1) && (column == rows || columns == 1);
    let evenly = match (&dims[..rank - 2], &stride[..rank - 2]) {
        ([], []) | ([_], [_]) => true,
        (&[outer, inner], &[far, near]) => far == near * inner || outer == 1 || inner == 1,
        _ => false,
    };
    (by_rows || by_columns) && evenly
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    fn ones(shape: &[usize]) -> Tensor {
        Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap()
    }

    #[test]
    fn packed_operands_are_multiplied() {
        let (a, b) = (ones(&[2, 3, 4]), ones(&[2, 4, 5]));
        let transposed = ones(&[2, 4, 3]).transpose(1, 2).unwrap();
        for y in [matmul(&a, &b).unwrap(), matmul(&transposed, &b).unwrap()] {
            assert_eq!(y.to_vec3::<f32>().unwrap(), vec![vec![vec![4.0; 5]; 3]; 2]);
        }
    }

    #[test]
    fn views_that_cuda_refuses_are_refused_here() {
        let a = ones(&[2, 3, 4]);
        let columns = ones(&[2, 4, 8]).narrow(2, 1, 5).unwrap();
        let heads = ones(&[2, 7, 4, 5]).narrow(1, 0, 3).unwrap();
        let swapped = ones(&[4, 2, 3]).transpose(0, 1).unwrap(); // rows of one matrix lie apart
        for (a, b) in [(&a, &columns), (&ones(&[2, 3, 6, 4]), &heads), (&swapped, &ones(&[2, 3, 5]))] {
            let message = matmul(a, b).unwrap_err().to_string();
            assert!(message.contains("matmul takes packed matrices, got shape"), "{message}");
        }
    }
}
