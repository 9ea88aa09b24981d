"""One run, or several compared, as a self-contained page: no network, works from a mail attachment.

The texts of a model are untrusted. They reach the page as JSON in a data block with `<`, `>` and
`&` escaped, and from there only through `textContent`; everything else is escaped by the template.
A content security policy allows the page's own script by its hash and nothing else.
"""

import base64
import hashlib
import importlib.resources
import math
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from disco_jax.report import panels, plots
from disco_jax.report.axes import RUNS, scientific
from disco_jax.report.progress import clock
from disco_jax.report.run import Row, Run, changes, interval, load, overrides, percent
from disco_jax.report.tables import printable
from disco_jax.report.writers import METRICS, Path, read_rollouts, rollout_counts

# The page stays small enough to open on a phone: about this much text, spread over the run.
STEPS, QUESTIONS, RESPONSES, CHARACTERS = 12, 12, 16, 2_000_000
POINTS = 600  # of a curve, for reading off


def write_report(workdir: Path, out: Path | None = None) -> pathlib.Path:
    """Renders a run to `report.html` in its workdir (or to `out`) and returns the path.

    Raises:
      ValueError: the workdir has no metrics, or a JSON file in it cannot be read.
      OSError: the page cannot be written.
    """
    run = load(workdir)
    return _write(single(run), run.path / "report.html" if out is None else pathlib.Path(out))


def write_comparison(workdirs: Sequence[Path], out: Path = "compare.html") -> pathlib.Path:
    """Renders several runs side by side to `out`; raises as `write_report` does."""
    return _write(comparison([load(workdir) for workdir in workdirs]), pathlib.Path(out))


def single(run: Run) -> str:
    """The page of one run."""
    shown = [panel for panel in panels.panels(run) if panel.draw is not panels.success_rates]
    rates = [panel for panel in panels.panels(run) if panel.draw is panels.success_rates]
    total = run.config.get("steps")
    steps = f"{run.step:,}" + (f" of {total:,}" if isinstance(total, int) else "")
    done = bool(run.summary)
    sample = rollout_sample(run)
    return _render(
        title=run.name,
        status="finished" if done else f"unfinished, step {steps}",
        done=done,
        about=_about(run),
        tiles=_tiles(run, steps),
        heads=[f"step {row['step']:,}" if row else "" for row in (run.before, run.after)],
        changes=changes(run.before, run.after) if run.evals else [],
        histogram=_plot(rates[0], run) if rates else None,
        plots=[_plot(panel, run) for panel in shown],
        other_plots=[_plot(panel, run) for panel in panels.others(run)],
        rollouts=sample,
        rollouts_note=f"{len(sample)} questions, spread over the run; all are in rollouts.jsonl.",
        config=_config([run.base, run.config] if run.base else [run.config], run.overrides),
        config_heads=["default", "this run"] if run.base else ["value"],
        config_same="all defaults" if run.base else "defaults unknown: no config_base.json",
        footer=f"python -m disco_jax.report {run.path}",
    )


def comparison(runs: Sequence[Run]) -> str:
    """The page that compares several runs."""
    names = plots.labels(runs)
    figures = []
    for metric in panels.COMPARED:
        if panels.compared(runs, metric):
            figures.append(
                plots.plot(
                    metric.title, lambda ax, m=metric: panels.draw_compared(ax, runs, m, names)
                )
            )
    first = runs[0].config
    differing = {k for run in runs for k in (*overrides(run.config, first), *first)
                 if run.config.get(k) != first.get(k)}  # fmt: skip
    return _render(
        title=f"{len(runs)} runs compared",
        about=", ".join(names),
        runs=[_line(i, name, run) for i, (name, run) in enumerate(zip(names, runs, strict=True))],
        plots=figures,
        config=_config([run.config for run in runs], differing),
        config_heads=names,
        config_same="no key differs",
        footer="python -m disco_jax.report " + " ".join(str(run.path) for run in runs),
    )


def rollout_sample(run: Run) -> list[dict[str, Any]]:
    """Questions with responses from steps spread evenly over the run, within the page's budget."""
    counts = rollout_counts(run.path)
    steps = _spread(sorted(counts), STEPS)
    wanted = {step: set(_spread(range(counts[step]), QUESTIONS)) for step in steps}
    seen = dict.fromkeys(steps, 0)
    rows = []
    for row in read_rollouts(run.path, set(steps)):
        index, seen[row["step"]] = seen[row["step"]], seen[row["step"]] + 1
        if index in wanted[row["step"]]:
            rows.append(_question(row))
    rows.sort(key=lambda row: -row["step"])  # the trained policy first
    texts = sum(len(row["responses"]) + 1 for row in rows)
    limit = max(400, CHARACTERS // max(1, texts))
    for row in rows:
        row["problem"] = printable(clip(row["problem"], limit), newlines=True)
        for response in row["responses"]:
            response["text"] = printable(clip(response["text"], limit), newlines=True)
    return rows


def clip(text: str, limit: int) -> str:
    """At most about `limit` characters: the beginning and, as answers are there, the end."""
    if len(text) <= limit:
        return text
    left_out = f"\n[... {len(text) - limit:,} characters left out ...]\n"
    return text[: limit // 2] + left_out + text[len(text) - (limit - limit // 2) :]


def _question(row: Row) -> dict[str, Any]:
    """A row of rollouts.jsonl as the page wants it; what is missing or odd becomes text or 0."""
    responses = [r for r in row.get("responses") or [] if isinstance(r, Mapping)]
    keep = 200_000  # far above any clipping: bounds memory while rows are collected
    return {
        "step": row["step"],
        "id": _short(row.get("question_id")),
        "problem": clip(str(row.get("problem", "")), keep),
        "golds": [_short(gold) for gold in (row.get("golds") or [])[:8]],
        "level": _short(row.get("level")),
        "left_out": max(0, len(responses) - RESPONSES),
        "responses": [
            {
                "text": clip(str(r.get("text", "")), keep),
                "reward": _real(r.get("reward")),
                "reason": _short(r.get("reason")),
                "tokens": int(_real(r.get("tokens"))),
                "ended": bool(r.get("ended", True)),
            }
            for r in responses[:RESPONSES]
        ],
    }


def _short(value: Any) -> str:
    return "" if value is None else printable(clip(str(value), 200))


def _real(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _spread(items: Sequence[int], count: int) -> list[int]:
    """At most `count` of the items, evenly spaced, first and last among them."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _about(run: Run) -> str:
    """Method, model and when the last row was written."""
    config = run.config
    named = (config.get(key) for key in ("objective.method", "method", "model.path", "model"))
    written = time.gmtime(os.path.getmtime(run.path / METRICS))
    parts = [printable(value) for value in named if isinstance(value, str) and value]
    return " \u00b7 ".join([*parts, time.strftime("last row %Y-%m-%d %H:%M UTC", written)])


def _tiles(run: Run, steps: str) -> list[dict[str, Any]]:
    tiles = []
    if run.evals:
        after = run.after
        line = changes(run.before, after)[0] if "eval/pass1" in run.before else None
        first, last = percent(run.before.get("eval/pass1")), percent(after.get("eval/pass1"))
        spans = [text for text in (interval(run.before), interval(after)) if text]
        tiles.append({
            "label": "Held-out pass@1",
            "value": f"{first} \u2192 {last}" if after else first,
            "change": line.change if line and after else "",
            "good": line.good if line else None,
            "note": "95 % interval " + " \u2192 ".join(spans) if spans else "",
        })  # fmt: skip
    if "best_step" in run.summary:
        best = run.summary
        tiles.append({
            "label": "Best policy",
            "value": f"step {best['best_step']:,}",
            "note": f"pass@1 {percent(best['best_pass1'])}, selected on the "
            + best["best_selected_on"],
        })  # fmt: skip
    recent = run.recent("reward/mean")
    if recent is not None:
        tiles.append({"label": "Training reward", "value": percent(recent),
                      "note": "last 10 steps"})  # fmt: skip
    kl, delta = run.recent("kl/mean"), run.delta
    if kl is not None:
        bound = f"bound \u03b4 = {scientific(delta)}" if delta else "last 10 steps"
        tiles.append({"label": "KL to the old policy", "value": scientific(kl), "note": bound})
    speed = run.recent("speed/tokens_per_s")
    pace = f", {speed:,.0f} tokens/s" if speed is not None else ""
    tiles.append({"label": "Steps", "value": steps, "note": f"in {clock(run.wall_s)}{pace}"})
    return tiles


def _line(index: int, name: str, run: Run) -> dict[str, Any]:
    """A run's row in the comparison."""
    line = changes(run.before, run.after)[0] if "eval/pass1" in run.before else None
    kl, delta = run.recent("kl/mean"), run.delta
    return {
        "name": name,
        "colour": index % len(RUNS),
        "before": line.before if line else "-",
        "after": line.after if line else "-",
        "change": line.change if line else "",
        "good": line.good if line else None,
        "kl": "-" if kl is None else scientific(kl),
        "delta": scientific(delta) if delta else "none",
        "steps": f"{run.step:,}",
        "time": clock(run.wall_s),
    }


def _config(columns: Sequence[Mapping[str, Any]], differing: Any) -> list[tuple[str, Any]]:
    """Key -> whether it differs, and its value in each column, for keys of any column."""
    keys = list(dict.fromkeys(key for column in columns for key in column))
    return [
        (
            printable(key),
            {
                "changed": key in differing,
                "cells": [clip(printable(c[key]), 400) if key in c else "" for c in columns],
            },
        )
        for key in keys
    ]


def _plot(panel: panels.Panel, run: Run) -> plots.Plot:
    return plots.plot(panel.title, lambda ax: panel.draw(ax, run))


def _readout(plot: plots.Plot) -> dict[str, Any] | None:
    """A plot's numbers for the pointer to read off, thinned to what a screen can tell apart."""
    shown = [
        {
            "colour": series.colour,
            "text": printable(series.text),
            "percent": series.percent,
            "points": [
                [step, float(f"{value:.4g}")]
                for step, value in zip(series.steps, series.values, strict=True)
                if math.isfinite(value)
            ][:: len(series.steps) // POINTS + 1],
        }
        for series in plot.series
        if len(series.steps)
    ]
    return {"limits": plot.limits, "margins": plots.MARGINS, "series": shown} if shown else None


def _render(**values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters["readout"] = _readout
    environment.filters["sha256"] = lambda text: base64.b64encode(
        hashlib.sha256(text.encode("utf-8")).digest()
    ).decode("ascii")
    source = importlib.resources.files("disco_jax.report").joinpath("report.html")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    return template.render(run_colours=RUNS, **values)


def _write(page: str, path: pathlib.Path) -> pathlib.Path:
    """Writes in one rename; characters that are no text (lone surrogates) become `?`."""
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(page.encode("utf-8", "replace"))
    os.replace(part, path)
    return path
