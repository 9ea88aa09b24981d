"""A workdir read back as one record: what the tables, the curves and the page all draw from."""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from disco_jax.report.writers import METRICS, Path, read_metrics

Row = dict[str, Any]
LEVEL = "eval/level/"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
      path: its workdir.
      train, evals: metrics rows by kind, in order of step.
      config: flat, dotted key -> value; empty where the workdir has no config.json.
      base: the defaults that `config` overrides, likewise, from config_base.json.
      summary: summary.json; empty while the run is not finished.
    """

    path: pathlib.Path
    train: list[Row]
    evals: list[Row]
    config: dict[str, Any]
    base: dict[str, Any]
    summary: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def before(self) -> Row:
        """The first evaluation."""
        return self.evals[0] if self.evals else {}

    @property
    def after(self) -> Row:
        """The last evaluation; empty where there was but one."""
        return self.evals[-1] if len(self.evals) > 1 else {}

    @property
    def step(self) -> int:
        """The last step on file."""
        return max((row["step"] for row in (*self.train, *self.evals)), default=0)

    @property
    def wall_s(self) -> float:
        return max((row.get("wall_s", 0.0) for row in (*self.train, *self.evals)), default=0.0)

    @property
    def delta(self) -> float | None:
        """The trust region's bound on the KL; None for methods without one."""
        return next((row["kl/delta"] for row in reversed(self.train) if "kl/delta" in row), None)

    @functools.cached_property
    def overrides(self) -> dict[str, tuple[Any, Any]]:
        """Key -> (default, value) where the run's config differs from the defaults."""
        return overrides(self.config, self.base) if self.base else {}

    def recent(self, key: str, steps: int = 10) -> float | None:
        """Mean of a training metric over the last steps that have it; None where none has."""
        values = [row[key] for row in self.train if math.isfinite(row.get(key, math.nan))]
        return sum(values[-steps:]) / len(values[-steps:]) if values else None


class Change(NamedTuple):
    """A line of the before/after table, as text; `good` is whether the change is a gain."""

    label: str
    before: str
    after: str
    change: str
    good: bool | None


def load(workdir: Path) -> Run:
    """Reads a workdir.

    Raises:
      ValueError: there are no metrics in it, or a JSON file in it cannot be read; one line.
    """
    path = pathlib.Path(workdir)
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder. Give the --workdir of a training run")
    rows = read_metrics(path)
    if not rows:
        state = "is empty" if (path / METRICS).exists() else "does not exist"
        raise ValueError(f"{path}: {METRICS} {state}. Give the --workdir of a training run")
    rows.sort(key=lambda row: row["step"])  # stable: a restart cannot reorder rows of a step
    return Run(
        path=path,
        train=[row for row in rows if row.get("kind") == "train"],
        evals=[row for row in rows if row.get("kind") == "eval"],
        config=flatten(_json(path / "config.json")),
        base=flatten(_json(path / "config_base.json")),
        summary=_json(path / "summary.json"),
    )


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> one with dotted keys, in order."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def overrides(config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key -> (default, value) of the flat config's keys that differ from `base`; new keys: None."""
    return {k: (base.get(k), v) for k, v in config.items() if k not in base or base[k] != v}


def changes(before: Row, after: Row) -> list[Change]:
    """The before/after table of two evaluations; figures that both lack are left out."""
    levels = {k.removeprefix(LEVEL) for row in (before, after) for k in row if k.startswith(LEVEL)}
    lines = [
        _change("pass@1", "eval/pass1", before, after, percent=True, sign=1),
        *(
            _change(f"pass@1, {level}", LEVEL + level, before, after, percent=True, sign=1)
            for level in sorted(levels)
        ),
        _change("mean response length", "eval/length", before, after),
        _change("truncated responses", "eval/truncated", before, after, percent=True, sign=-1),
    ]
    return [line for line in lines if line]


def percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def interval(row: Row) -> str:
    """`[low, high]` of held-out pass@1 in percent; empty where the row has none."""
    low, high = (row.get(f"eval/pass1_{end}", math.nan) for end in ("low", "high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def _change(
    label: str, key: str, before: Row, after: Row, percent: bool = False, sign: int = 0
) -> Change | None:
    """`sign` says which direction is a gain: up, down, or neither (0)."""
    if key not in before and key not in after:
        return None
    scale, unit = (100, " %") if percent else (1, "")
    values = [row.get(key, math.nan) * scale for row in (before, after)]
    shown = [f"{v:.1f}{unit}" if math.isfinite(v) else "-" for v in values]
    if key == "eval/pass1":
        pairs = zip(shown, (before, after), strict=True)
        shown = [f"{text} {interval(row)}".strip() for text, row in pairs]
    difference = values[1] - values[0]
    if not math.isfinite(difference):
        return Change(label, *shown, "", None)
    good = sign * difference > 0 if sign and abs(difference) >= 0.05 else None
    return Change(label, *shown, f"{difference:+.1f}{' points' if percent else ''}", good)


def _json(path: pathlib.Path) -> dict[str, Any]:
    """The file's object; empty where there is no file."""
    if not path.exists():
        return {}
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: holds a {type(tree).__name__}, should be an object")
    return tree
