"""A run as figures: curves.png, comparisons of several runs, and single panels for the page.

Figures are built by matplotlib's object interface, so nothing here touches pyplot's global state.
"""

import io
import math
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from disco_jax.report.panels import COMPARED, PALETTE, RUNS, compared, draw_compared, panels
from disco_jax.report.run import Run, load
from disco_jax.report.writers import Path


def curves(run: Run) -> Any:
    """All panels that the run has data for, as one matplotlib figure."""
    figure, axes = _grid([panel.title for panel in panels(run)])
    for panel, ax in zip(panels(run), axes, strict=True):
        legend = panel.draw(ax, run)
        _legend(ax, [(PALETTE[colour], text) for colour, text in legend.items()])
    _suptitle(figure, f"{run.name}, by training step")
    return figure


def compare(workdirs: Sequence[Path]) -> Any:
    """Several runs in the same axes, as one matplotlib figure.

    Raises:
      ValueError: a workdir without metrics.
    """
    runs = [load(workdir) for workdir in workdirs]
    shown = [metric for metric in COMPARED if compared(runs, metric)]
    figure, axes = _grid([metric.title for metric in shown])
    for metric, ax in zip(shown, axes, strict=True):
        draw_compared(ax, runs, metric)
    names = labels(runs)
    _legend(figure, [(RUNS[i % len(RUNS)], name) for i, name in enumerate(names)])
    return figure


def save_curves(workdir: Path) -> pathlib.Path:
    """Writes `curves.png` of the run into its workdir and returns the path."""
    path = pathlib.Path(workdir) / "curves.png"
    curves(load(workdir)).savefig(path, dpi=144)
    return path


def panel_svg(draw: Callable[[Any], None], height: float = 2.5) -> str:
    """What `draw` draws into a pair of axes, as an SVG element.

    Its colours are variables of the page's style sheet, its text is text in the page's font.
    """
    figure, (ax,) = _grid([""], panel=(4.6, height))
    draw(ax)
    return svg(figure)


def svg(figure: Any) -> str:
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "disco_jax"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{name})")
    for i, colour in enumerate(RUNS):
        text = text.replace(colour, f"var(--run{i})")
    return text


def labels(runs: Sequence[Run]) -> list[str]:
    """Names for runs: the workdir's last folder, or its whole path where two are alike."""
    names = [run.name for run in runs]
    return [str(r.path) if names.count(n) > 1 else n for r, n in zip(runs, names, strict=True)]


def _grid(titles: Sequence[str], panel: tuple[float, float] = (4.4, 2.7)) -> tuple[Any, list[Any]]:
    """A figure with one styled pair of axes per title, in rows of three or four."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = max(1, len(titles))
    columns = 4 if count in (4, 7, 8) else min(3, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
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
    return figure, axes


def _legend(parent: Any, entries: Sequence[tuple[str, str]]) -> None:
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
    legend = parent.legend(handles, [_ascii(text) for _, text in entries], frameon=False,
                           fontsize=10 if whole else 8, labelcolor=PALETTE["muted"],
                           handlelength=1, columnspacing=1,
                           ncols=min(4, len(entries)), **place)  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _suptitle(figure: Any, text: str) -> None:
    title = figure.suptitle(_ascii(text), x=0.01, ha="left", color=PALETTE["ink"], fontsize=12)
    title.set_parse_math(False)


def _ascii(text: str) -> str:
    """Characters outside ASCII as `?`: the font may lack them, which matplotlib warns about."""
    return text.encode("ascii", "replace").decode("ascii")
