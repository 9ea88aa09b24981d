"""The panels of a run: what is drawn in each pair of axes, and whether the run has it.

Axes come in already styled; nothing here knows whether it draws for curves.png or for the page.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from disco_jax.report.axes import PALETTE, RUNS, scientific, scientific_axis, share_axis
from disco_jax.report.run import Row, Run

SMOOTH_FROM = 80  # points; longer series get a running mean on top of the raw line


class Series(NamedTuple):
    """What a panel shows: the legend's entry, and the figures to read off under the pointer.

    `colour` names an entry of PALETTE, or `run0`, `run1`, ... of RUNS; a series whose text is
    empty needs no legend.
    """

    colour: str
    text: str = ""
    steps: Sequence[int] = ()
    values: Sequence[float] = ()
    percent: bool = False


class Panel(NamedTuple):
    """A plot of a run: where `shown(run)`, `draw(axes, run)` draws and says what it drew."""

    title: str
    shown: Callable[[Run], bool]
    draw: Callable[[Any, Run], list[Series]]


def series(rows: Sequence[Row], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric, from the rows that have it; nan stays, as a gap."""
    points = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
    return [step for step, _ in points], [value for _, value in points]


def panels(run: Run) -> list[Panel]:
    return [panel for panel in PANELS if panel.shown(run)]


def _has(*keys: str, rows: str = "train") -> Callable[[Run], bool]:
    def shown(run: Run) -> bool:
        values = (row.get(key) for row in getattr(run, rows) for key in keys)
        return any(isinstance(value, int | float) and math.isfinite(value) for value in values)

    return shown


def _line(
    key: str, colour: str = "main", share: bool = False
) -> Callable[[Any, Run], list[Series]]:
    def draw(ax: Any, run: Run) -> list[Series]:
        steps, values = series(run.train, key)
        _curve(ax, steps, values, PALETTE["main"])
        known = [abs(value) for value in values if math.isfinite(value)]
        low, high = ax.get_ylim()
        if high - low < 1e-6 * max(known, default=0):  # constant: show its size, not rounding
            ax.set_ylim(low - 0.1 * max(known), high + 0.1 * max(known))
        if share:
            share_axis(ax)
        return [Series("main", "", steps, values, share)]

    return draw


def _curve(ax: Any, steps: list[int], values: list[float], colour: str) -> None:
    """A line; a long one is drawn faint under its running mean."""
    if len(values) < SMOOTH_FROM:
        dots = {"marker": "o", "markersize": 2.5} if len(values) < 30 else {}  # seen between gaps
        ax.plot(steps, values, color=colour, linewidth=1.5, **dots)
        return
    ax.plot(steps, values, color=colour, linewidth=0.7, alpha=0.3)
    ax.plot(steps, running_mean(values, len(values) // 40 + 1), color=colour, linewidth=1.6)


def running_mean(values: Sequence[float], reach: int) -> list[float]:
    """Mean over the neighbours up to `reach` away, fewer at the ends; nan counts for nothing."""
    means = []
    for i in range(len(values)):
        near = [v for v in values[max(0, i - reach) : i + reach + 1] if math.isfinite(v)]
        means.append(sum(near) / len(near) if near else math.nan)
    return means


def _pass1(ax: Any, run: Run) -> list[Series]:
    steps, values = series(run.evals, "eval/pass1")
    _band(ax, run.evals, PALETTE["main"])
    ax.plot(steps, values, color=PALETTE["main"], linewidth=1.6, marker="o", markersize=3)
    share_axis(ax)
    return [Series("main", "mean and 95 % interval", steps, values, percent=True)]


def _band(ax: Any, rows: Sequence[Row], colour: str) -> None:
    rows = [row for row in rows if "eval/pass1_low" in row and "eval/pass1_high" in row]
    low, high = series(rows, "eval/pass1_low"), series(rows, "eval/pass1_high")
    ax.fill_between(low[0], low[1], high[1], color=colour, alpha=0.16, linewidth=0)


def _kl(ax: Any, run: Run) -> list[Series]:
    """KL on a log scale; a sampled KL may be negative, and then sits as a mark on the floor."""
    steps, values = series(run.train, "kl/mean")
    shows = [Series("main", "KL" if any("kl/floor" in r for r in run.train) else "", steps, values)]
    positive = [value if value > 0 else math.nan for value in values]
    shown = [value for value in positive if math.isfinite(value)]
    ax.set_yscale("log")
    _curve(ax, steps, positive, PALETTE["main"])
    if any("kl/floor" in row for row in run.train):
        at, floor = series(run.train, "kl/floor")
        shows.append(Series("muted", "numerical floor", at, floor))
        floor = running_mean([v if v > 0 else math.nan for v in floor], len(floor) // 40)
        ax.plot(at, floor,
                color=PALETTE["muted"], linewidth=1.2, linestyle=":")  # fmt: skip
    delta = run.delta
    if delta:
        ax.axhline(delta, color=PALETTE["wrong"], linewidth=1.2, linestyle=(0, (5, 2)))
        shown.append(delta)
        text = ax.annotate(
            f"\u03b4 = {scientific(delta)}",
            (0, delta),
            (4, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=PALETTE["wrong"],
            fontsize=8,
        )
        text.set_in_layout(False)
    if shown:  # a stray near-zero value must not stretch the axis over ten decades
        ax.set_ylim(max(min(shown), max(shown) * 1e-4) / 2, max(shown) * 3)
    below = [step for step, value in zip(steps, values, strict=True) if value <= 0]
    floor_y = [0.02] * len(below)
    ax.plot(below, floor_y, transform=ax.get_xaxis_transform(), linestyle="", marker="v",
            markersize=3, color=PALETTE["main"], alpha=0.6)  # fmt: skip
    scientific_axis(ax)
    return shows


def _shares(ax: Any, run: Run) -> list[Series]:
    """All wrong from below, all right from above; what is left between has something to teach."""
    rows = [row for row in run.train if _all_finite(row, *QUESTION_SHARES)]
    steps, right = series(rows, "questions/all_right")
    _, wrong = series(rows, "questions/all_wrong")
    top = [1 - value for value in right]
    ax.fill_between(steps, 0, wrong, color=PALETTE["wrong"], alpha=0.75, linewidth=0)
    ax.fill_between(steps, wrong, top, color=PALETTE["mixed"], linewidth=0)
    ax.fill_between(steps, top, 1, color=PALETTE["right"], alpha=0.75, linewidth=0)
    share_axis(ax)
    ax.set_ylim(0, 1)
    ax.margins(x=0)
    mixed = [high - low for high, low in zip(top, wrong, strict=True)]
    shares = (("right", right), ("mixed", mixed), ("wrong", wrong))
    texts = {"right": "all right", "mixed": "mixed", "wrong": "all wrong"}
    return [Series(name, texts[name], steps, values, percent=True) for name, values in shares]


def _length(ax: Any, run: Run) -> list[Series]:
    train = series(run.train, "response/length")
    _curve(ax, *train, PALETTE["main"])
    steps, values = series(run.evals, "eval/length")
    ax.plot(steps, values, color=PALETTE["second"], linewidth=1.2, marker="o", markersize=3)
    ax.set_ylim(bottom=0)
    return [Series("main", "training", *train), Series("second", "held-out", steps, values)]


def success_rates(ax: Any, run: Run) -> list[Series]:
    for row, colour, shift in ((run.before, "muted", -0.2), (run.after, "main", 0.2)):
        counts = row.get("eval/histogram")
        if isinstance(counts, list) and counts:
            at = [i + (shift if run.after else 0) for i in range(len(counts))]
            width = 0.38 if run.after else 0.7
            heights = [count if math.isfinite(count) else 0 for count in counts]
            ax.bar(at, heights, width=width, color=PALETTE[colour])
            k = len(counts) - 1
            ticks = range(0, k + 1, max(1, math.ceil(k / 8)))
            ax.set_xticks(list(ticks), [f"{i}/{k}" for i in ticks])
    ax.grid(visible=False, axis="x")
    return [Series("muted", "before"), Series("main", "after")][: 2 if run.after else 1]


def _has_histogram(run: Run) -> bool:
    return any(isinstance(row.get("eval/histogram"), list) for row in (run.before, run.after))


def _has_shares(run: Run) -> bool:
    return any(_all_finite(row, *QUESTION_SHARES) for row in run.train)


def _has_positive_kl(run: Run) -> bool:
    return any(row.get("kl/mean", math.nan) > 0 for row in run.train)


def _all_finite(row: Row, *keys: str) -> bool:
    return all(math.isfinite(row.get(key, math.nan)) for key in keys)


QUESTION_SHARES = ("questions/all_right", "questions/all_wrong")
PANELS = (
    Panel("Training reward", _has("reward/mean"), _line("reward/mean", share=True)),
    Panel("Held-out pass@1", _has("eval/pass1", rows="evals"), _pass1),
    Panel("KL to the old policy", _has_positive_kl, _kl),
    Panel("Entropy per token, nats", _has("entropy/mean"), _line("entropy/mean")),
    Panel("Response tokens", _has("response/length"), _length),
    Panel("Questions", _has_shares, _shares),
    Panel("Held-out success rates", _has_histogram, success_rates),
)


_DRAWN = {"reward/mean", "kl/mean", "kl/delta", "kl/floor", "entropy/mean", "response/length",
          *QUESTION_SHARES}  # fmt: skip


def others(run: Run) -> list[Panel]:
    """A plain panel for each training metric that no panel of `PANELS` draws."""
    keys = {key for row in run.train for key in row} - {"step", "wall_s", "kind"} - _DRAWN
    found = [Panel(key, _has(key), _line(key)) for key in sorted(keys)]
    return [panel for panel in found if panel.shown(run)]


class Metric(NamedTuple):
    """A figure in which runs are compared."""

    title: str
    rows: str
    value: Callable[[Row], float]
    share: bool = False
    log: bool = False


def _key(key: str) -> Callable[[Row], float]:
    return lambda row: row.get(key, math.nan)


COMPARED = (
    Metric("Held-out pass@1", "evals", _key("eval/pass1"), share=True),
    Metric("Training reward", "train", _key("reward/mean"), share=True),
    Metric("KL to the old policy", "train", _key("kl/mean"), log=True),
    Metric("Entropy per token, nats", "train", _key("entropy/mean")),
    Metric("Response tokens", "train", _key("response/length")),
    Metric("Questions with mixed outcomes", "train",
           lambda row: 1 - sum(row.get(key, math.nan) for key in QUESTION_SHARES), share=True),
)  # fmt: skip


def compared(runs: Sequence[Run], metric: Metric) -> bool:
    """Whether any run has the metric."""
    return any(
        math.isfinite(metric.value(row)) for run in runs for row in getattr(run, metric.rows)
    )


def draw_compared(
    ax: Any, runs: Sequence[Run], metric: Metric, names: Sequence[str]
) -> list[Series]:
    shows = []
    for i, run in enumerate(runs):
        colour = RUNS[i % len(RUNS)]
        rows = getattr(run, metric.rows)
        values = [metric.value(row) for row in rows]
        if metric.log:
            values = [value if value > 0 else math.nan for value in values]
        if metric.rows == "evals":
            _band(ax, rows, colour)
        steps = [row["step"] for row in rows]
        _curve(ax, steps, values, colour)
        shows.append(Series(f"run{i % len(RUNS)}", names[i], steps, values, metric.share))
        if metric.log and run.delta:
            ax.axhline(run.delta, color=colour, linewidth=1, linestyle=(0, (5, 2)))
    if metric.share:
        share_axis(ax)
    if metric.log:
        ax.set_yscale("log")
        scientific_axis(ax)
    return shows
