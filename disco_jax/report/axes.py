"""Axes that look alike everywhere: colours, grid lines, tick labels, legends."""

import math
from collections.abc import Sequence
from typing import Any

# On the page each of these is replaced by the style sheet's variable of that name, so they differ.
PALETTE = {
    "ink": "#20262e",
    "muted": "#6b7480",
    "grid": "#e3e6ea",
    "main": "#2b6cb0",
    "second": "#b7791f",
    "right": "#2f855a",
    "wrong": "#c0533f",
    "mixed": "#cfd9e6",
}
RUNS = ("#2b6cb1", "#c05621", "#2f855b", "#8047a8", "#b83280", "#5b6b7d", "#a07a12", "#138a94")


def grid(
    titles: Sequence[str], panel: tuple[float, float] = (4.4, 2.7), layout: str = "constrained"
) -> tuple[Any, list[Any]]:
    """A figure with one styled pair of axes per title, in rows of three or four."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = max(1, len(titles))
    columns = 4 if count in (4, 7, 8) else min(3, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout=layout)
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(len(titles))]
    for ax, title in zip(axes, titles, strict=True):
        if title:
            ax.set_title(title, loc="left", color=PALETTE["ink"], fontsize=10, fontweight="bold")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(PALETTE["grid"])
        ax.tick_params(colors=PALETTE["muted"], labelsize=8, length=0, which="both")
        ax.grid(color=PALETTE["grid"], linewidth=0.8)
        ax.set_axisbelow(True)
        ax.locator_params(nbins=5)
        ax.yaxis.set_major_formatter(lambda value, _: plain(value))
    return figure, axes


def legend(parent: Any, entries: Sequence[tuple[str, str]]) -> None:
    """A legend at the right of the axes' title line, or on top of a whole figure.

    Names are shown as they are, never read as mathematics. The place is fixed: searching for the
    emptiest corner is slow on long curves, and warns that it is.
    """
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [Line2D([], [], color=colour, linewidth=2.5) for colour, _ in entries]
    whole = hasattr(parent, "add_subplot")
    place = {"loc": "outside upper left"} if whole else {
        "loc": "lower right", "bbox_to_anchor": (1.02, 0.98), "borderpad": 0.2}  # fmt: skip
    entry = parent.legend(handles, [_ascii(text) for _, text in entries], frameon=False,
                           fontsize=10 if whole else 8, labelcolor=PALETTE["muted"],
                           handlelength=1, columnspacing=1,
                           ncols=min(4, len(entries)), **place)  # fmt: skip
    for text in entry.get_texts():
        text.set_parse_math(False)


def headline(figure: Any, text: str) -> None:
    title = figure.suptitle(_ascii(text), x=0.01, ha="left", color=PALETTE["ink"], fontsize=12)
    title.set_parse_math(False)


def _ascii(text: str) -> str:
    """Characters outside ASCII as `?`: the font may lack them, which matplotlib warns about."""
    return text.encode("ascii", "replace").decode("ascii")


def share_axis(ax: Any) -> None:
    """A vertical axis of shares in percent, within 0 and 1."""
    low, high = ax.get_ylim()
    ax.set_ylim(max(0, low), min(1, high) if high > max(0, low) else 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g} %")


def plain(value: float) -> str:
    """An axis label: as it is written, scientific where that is long."""
    return f"{value:,.10g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else scientific(value)


def scientific(value: float) -> str:
    """`1e-4`, `1.5e-4`: as short as it gets."""
    if not math.isfinite(value):
        return str(value)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def scientific_axis(ax: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = ax.get_ylim()
    subs = (1.0,) if high / low > 100 else (1.0, 2.0, 5.0)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(lambda value, _: scientific(value))
