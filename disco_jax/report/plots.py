"""A run as figures: curves.png, comparisons of several runs, and single panels for the page.

Figures are built by matplotlib's object interface, so nothing here touches pyplot's global state.
"""

import io
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from disco_jax.report.axes import PALETTE, RUNS, grid, headline, legend
from disco_jax.report.panels import COMPARED, Series, compared, draw_compared, panels
from disco_jax.report.run import Run, load
from disco_jax.report.writers import Path

MARGINS = (0.125, 0.985)  # of a plot's width, where its axes begin and end


def curves(run: Run) -> Any:
    """All panels that the run has data for, as one matplotlib figure."""
    figure, axes = grid([panel.title for panel in panels(run)])
    for panel, ax in zip(panels(run), axes, strict=True):
        shown = panel.draw(ax, run)
        legend(ax, [(PALETTE[colour], text) for colour, text, *_ in shown if text])
    headline(figure, f"{run.name}, by training step")
    return figure


def compare(workdirs: Sequence[Path]) -> Any:
    """Several runs in the same axes, as one matplotlib figure.

    Raises:
      ValueError: a workdir without metrics.
    """
    runs = [load(workdir) for workdir in workdirs]
    shown = [metric for metric in COMPARED if compared(runs, metric)]
    figure, axes = grid([metric.title for metric in shown])
    names = labels(runs)
    for metric, ax in zip(shown, axes, strict=True):
        draw_compared(ax, runs, metric, names)
    legend(figure, [(RUNS[i % len(RUNS)], name) for i, name in enumerate(names)])
    return figure


def save_curves(workdir: Path) -> pathlib.Path:
    """Writes `curves.png` of the run into its workdir and returns the path."""
    path = pathlib.Path(workdir) / "curves.png"
    curves(load(workdir)).savefig(path, dpi=144)
    return path


class Plot(NamedTuple):
    """A panel for the page.

    Attributes:
      series: what it shows.
      svg: an SVG element; its colours are variables of the page's style sheet, its text is text
        in the page's font. The axes span MARGINS of its width.
      limits: steps at the left and the right end of the axes.
    """

    title: str
    series: list[Series]
    svg: str
    limits: tuple[float, float]


def plot(title: str, draw: Callable[[Any], list[Series]]) -> Plot:
    """Draws into axes of a fixed place, so that plots side by side line up."""
    figure, (ax,) = grid([""], panel=(4.6, 2.5), layout="none")
    ax.set_position((MARGINS[0], 0.1, MARGINS[1] - MARGINS[0], 0.86))
    shown = draw(ax)
    return Plot(title, shown, svg(figure), ax.get_xlim())


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
