"""``mamba2-bridge candle-ops``: which of Candle's own operations have right values and gradients."""

from __future__ import annotations

import click

from mamba2_bridge import _native


@click.command("candle-ops")
def candle_ops() -> None:
    """Measure the operations of the Candle that is linked, and print a table as Markdown.

    Values against computations by hand in float64, gradients against finite differences; in both element
    types, for batches of 1 and 2, on contiguous operands and on views.
    """
    click.echo(_native.candle_operations(), nl=False)
