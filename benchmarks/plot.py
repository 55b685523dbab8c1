"""The picture of how time grows with the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.registry import CONTENDERS, OURS
from benchmarks.works import LENGTHS, LONG_LENGTHS, MODE_TITLES

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Results


def plot_growth(results: Results, path: Path) -> None:
    """Draw time per token over seqlen, forward and forward with backward, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "performance", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, (mode, title) in zip(panels, MODE_TITLES.items(), strict=True):
            for name, entry in CONTENDERS.items():
                lengths, per_token = _curve(results, mode, name)
                if lengths:
                    width = 2.5 if name == OURS else 1.2
                    panel.plot(
                        lengths, per_token, marker="o", markersize=3, linewidth=width, label=entry.title
                    )
            panel.set(title=title, xlabel="tokens", xscale="log", yscale="log")
            panel.set_xticks([*LENGTHS, LONG_LENGTHS[-1]])
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("microseconds per token")
        handles, labels = panels[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside right center", frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _curve(results: Results, mode: str, contender: str) -> tuple[list[int], list[float]]:
    seconds = {n: results.seconds(f"{mode}-{n}", contender) for n in (*LENGTHS, *LONG_LENGTHS)}
    measured = {n: value / n * 1e6 for n, value in seconds.items() if value is not None}
    return list(measured), list(measured.values())
