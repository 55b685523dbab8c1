//! The table as Markdown.

use std::fmt::Write;

use candle_core::DType;
use indexmap::IndexSet;

use super::{Layout, Row, Verdict, candle_version, table};

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
    let version = candle_version().map_or_else(|| "of unknown version".to_owned(), |version| version.to_owned());
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
    text.push_str("\nThe worst of all operands is shown; `b1`, `b2`: batches of 1 and of 2, where they differ; `(of x)`: the operand that is a view.\n");
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
    let of = |batch| {
        row.worst(dtype, batch, layout).map(|cell| {
            let of =
                cell.view_of.filter(|_| cell.verdict != Verdict::Right && row.cells(dtype, batch, layout).count() > 1);
            of.map_or_else(|| cell.verdict.to_string(), |view| format!("{} (of {view})", cell.verdict))
        })
    };
    match (of(1), of(2)) {
        (Some(one), Some(two)) if one != two => format!("b1: {one}; b2: {two}"),
        (one, two) => one.or(two).unwrap_or_else(|| "—".to_owned()),
    }
}

fn messages(rows: &[Row]) -> IndexSet<String> {
    let mut messages = IndexSet::new();
    for row in rows {
        for cell in &row.cells {
            let (what, message) = match &cell.verdict {
                Verdict::Unsupported { message } => ("unsupported", message),
                Verdict::NoBackward { message: Some(message), .. } => ("no backward", message),
                _ => continue,
            };
            messages.insert(format!(
                "{}, {} {}: {what}, {}",
                row.operation,
                cell.dtype.as_str(),
                cell.layout,
                first_line(message)
            ));
        }
    }
    messages
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim().to_owned()
}
