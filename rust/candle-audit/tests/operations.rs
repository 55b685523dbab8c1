//! What is known of Candle's operations, in the version that is linked.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

use candle_audit::operations::{Layout, Row, Verdict, candle_version, render, table};
use candle_core::DType;

const TYPES: [DType; 2] = [DType::F32, DType::F64];

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|row| row.operation == name).unwrap_or_else(|| panic!("no {name} in the table"))
}

fn worst(rows: &[Row], name: &str, dtype: DType, batch: usize, layout: Layout) -> Verdict {
    row(rows, name).worst(dtype, batch, layout).unwrap().verdict.clone()
}

#[test]
fn known_faults_are_in_the_table() {
    let rows = table();
    for dtype in TYPES {
        for name in ["conv1d", "conv1d, stride 2", "conv1d, dilation 2", "conv1d, 2 groups"] {
            assert_eq!(worst(&rows, name, dtype, 1, Layout::Contiguous), Verdict::Right, "{name}");
            let found = worst(&rows, name, dtype, 2, Layout::Contiguous);
            assert!(matches!(found, Verdict::WrongGradient { input: "kernel", .. }), "{name}: {found}");
            let found = worst(&rows, name, dtype, 1, Layout::Transposed);
            assert!(matches!(found, Verdict::WrongValue { .. }), "{name}: {found}");
        }
        for name in ["Linear", "matmul, rhs broadcast over the batch"] {
            assert_eq!(worst(&rows, name, dtype, 1, Layout::Transposed), Verdict::Right, "{name}");
            let found = row(&rows, name).cells(dtype, 2, Layout::Transposed).next().unwrap();
            assert!(matches!(found.verdict, Verdict::WrongValue { .. }), "{name}: {}", found.verdict);
        }
        for name in ["softmax_last_dim", "rotary_emb::rope", "rotary_emb::rope_i"] {
            let found = worst(&rows, name, dtype, 1, Layout::Contiguous);
            assert_eq!(found, Verdict::NoBackward { input: "x", message: None }, "{name}");
        }
        for name in
            ["scatter", "scatter_add, a source for each place", "max, at ties", "upsample_nearest1d, input used twice"]
        {
            let found = worst(&rows, name, dtype, 1, Layout::Contiguous);
            assert!(matches!(found, Verdict::WrongGradient { input: "x", .. }), "{name}: {found}");
        }
        let found = worst(&rows, "conv1d, no padding", dtype, 2, Layout::Contiguous);
        assert!(matches!(found, Verdict::WrongGradient { input: "x", .. }), "{found}");
        let found = worst(&rows, "conv_transpose1d", dtype, 2, Layout::Contiguous);
        assert!(matches!(found, Verdict::WrongValue { .. }), "{found}");
        let found = worst(&rows, "unfold, windows overlap", dtype, 1, Layout::Contiguous);
        assert!(matches!(found, Verdict::NoBackward { input: "x", message: Some(_) }), "{found}");
    }
    for name in ["RmsNorm::forward", "LayerNorm::forward", "ops::rms_norm", "ops::layer_norm"] {
        let found = worst(&rows, name, DType::F32, 2, Layout::Contiguous);
        assert_eq!(found, Verdict::NoBackward { input: "x", message: None }, "{name}");
        let found = worst(&rows, name, DType::F64, 2, Layout::Contiguous);
        assert!(matches!(found, Verdict::Unsupported { .. }), "{name}: {found}");
    }
    for name in ["gelu", "gelu_erf"] {
        let found = worst(&rows, name, DType::F64, 1, Layout::Contiguous);
        assert!(matches!(found, Verdict::Imprecise { gradient: Some("x"), error } if error < 1e-5), "{name}: {found}");
    }
}

/// Rows with a fault; all others must be right, or say that they refuse.
const FAULTY: [&str; 23] = [
    "matmul, rhs broadcast over the batch",
    "Linear",
    "conv1d",
    "conv1d, no padding",
    "conv1d, 1 output channel",
    "conv1d, stride 2",
    "conv1d, dilation 2",
    "conv1d, 2 groups",
    "Conv1d",
    "conv_transpose1d",
    "max, at ties",
    "softmax_last_dim",
    "RmsNorm::forward",
    "ops::rms_norm",
    "LayerNorm::forward",
    "ops::layer_norm",
    "rotary_emb::rope",
    "rotary_emb::rope_i",
    "unfold, windows overlap",
    "upsample_nearest1d, input used twice",
    "scatter",
    "scatter_add",
    "scatter_add, a source for each place",
];

#[test]
fn all_others_can_be_trusted() {
    let rows = table();
    let faulty: Vec<_> = rows.iter().filter(|row| !row.is_trustworthy()).map(|row| row.operation).collect();
    assert_eq!(faulty, FAULTY);
    for row in rows.iter().filter(|row| !FAULTY.contains(&row.operation) && row.operation != "ops::sdpa") {
        for cell in row.cells.iter().filter(|cell| cell.layout == Layout::Contiguous) {
            assert!(
                matches!(cell.verdict, Verdict::Right | Verdict::Imprecise { .. }),
                "{}: {}",
                row.operation,
                cell.verdict
            );
        }
    }
}

#[test]
fn the_table_is_rendered_in_full() {
    let rows = table();
    let text = render(&rows);
    assert!(text.starts_with(&format!("Operations of Candle {} on a CPU", candle_version().unwrap())), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(lines.len(), rows.len() + 1);
    assert!(lines.iter().all(|line| line.matches('|').count() == 10));
    assert!(text.contains("ops::sdpa, unsupported: SDPA has no cpu impl"), "{text}");
}

#[test]
fn the_version_is_that_of_the_lock() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
    let entry = format!("name = \"candle-core\"\nversion = \"{}\"\n", candle_version().unwrap());
    assert!(lock.contains(&entry), "{entry}");
}
