//! Prints the table of Candle's operations as Markdown: `cargo run --release --package candle-audit --example operations`

fn main() {
    print!("{}", candle_audit::operations::markdown());
}
