//! The table as Markdown.

use std::fmt::Write;

use candle_core::DType;
use indexmap::IndexMap;

use super::{Cell, Layout, Row, Verdict, candle_version, table};

const TYPES: [DType; 2] = [DType::F32, DType::F64];
const LAYOUTS: [Layout; 4] = [Layout::Contiguous, Layout::Transposed, Layout::Narrowed, Layout::Broadcast];

/// Measures all operations and renders what was found.
#[must_use]
pub fn markdown() -> String {
    render(&table())
}

/// Renders rows of [`table`]: a line for each operation, a column for each element type and layout, and below it Candle's messages.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    let version = candle_version().map_or_else(|| "of unknown version".to_owned(), str::to_owned);
    // Writing to a string can't fail.
    let _ = writeln!(text, "Operations of Candle {version} on a CPU, against computations by hand in f64.\n");
    text.push_str("| operation |");
    for dtype in TYPES {
        for layout in LAYOUTS {
            let _ = write!(text, " {} {layout} |", dtype.as_str());
        }
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(TYPES.len() * LAYOUTS.len()));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", row.operation);
        for dtype in TYPES {
            for layout in LAYOUTS {
                let _ = write!(text, " {} |", cell(row, dtype, layout));
            }
        }
        text.push('\n');
    }
    text.push_str("\nThe worst of all operands is shown, by its relative error where it is small; `b1`, `b2`: batches of 1 and of 2, where they differ; `(of x)`: the operand that is a view.\n");
    let messages = messages(rows);
    if !messages.is_empty() {
        text.push_str("\nWhat Candle says where it refuses:\n\n");
        for message in messages {
            let _ = writeln!(text, "- {message}");
        }
    }
    text
}

fn cell(row: &Row, dtype: DType, layout: Layout) -> String {
    let of = |batch| row.worst(dtype, batch, layout);
    let text = |cell: &Cell| {
        let several = row.cells(dtype, cell.batch, layout).count() > 1;
        let view = cell.view_of.filter(|_| several && cell.verdict != Verdict::Right);
        view.map_or_else(|| cell.verdict.to_string(), |view| format!("{} (of {view})", cell.verdict))
    };
    match (of(1), of(2)) {
        (Some(one), Some(two)) if alike(one, two) => {
            text(if one.verdict.error() > two.verdict.error() { one } else { two })
        }
        (Some(one), Some(two)) => format!("b1: {}; b2: {}", text(one), text(two)),
        (one, two) => one.or(two).map_or_else(|| "—".to_owned(), text),
    }
}

/// Whether two cells differ in how large the error is, at most.
fn alike(one: &Cell, two: &Cell) -> bool {
    let operand = |cell: &Cell| match cell.verdict {
        Verdict::WrongGradient { input, .. } | Verdict::NoBackward { input, .. } => Some(input),
        Verdict::Imprecise { gradient, .. } => gradient,
        _ => None,
    };
    std::mem::discriminant(&one.verdict) == std::mem::discriminant(&two.verdict) && operand(one) == operand(two)
}

/// One message for each operation and kind of refusal.
fn messages(rows: &[Row]) -> Vec<String> {
    let mut messages = IndexMap::new();
    for row in rows {
        for cell in &row.cells {
            let (what, message) = match &cell.verdict {
                Verdict::Unsupported { message } => ("unsupported", message),
                Verdict::NoBackward { message: Some(message), .. } => ("no backward", message),
                _ => continue,
            };
            let message = message.lines().next().unwrap_or_default().trim();
            messages.entry((row.operation, what)).or_insert(message);
        }
    }
    messages.into_iter().map(|((operation, what), message)| format!("{operation}, {what}: {message}")).collect()
}
