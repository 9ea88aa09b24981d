"""Append-only records of a run that survive being killed: a row is on file once, or not at all.

A run that resumes from step k calls the writers with `resume_step=k`: rows of later steps, written
by the process that died, are dropped before the first new row, so a file never holds a step twice.
"""

import json
import math
import os
import pathlib
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from disco_jax.report.tensorboard import Events

METRICS, ROLLOUTS, TENSORBOARD = "metrics.jsonl", "rollouts.jsonl", "tensorboard"
Path = str | os.PathLike[str]

_STEP = re.compile(rb'\{"step": (\d+)[,}]')  # how every row starts; spares parsing long rows


class JsonLines:
    """A file of one JSON object per line, each starting with its step, flushed line by line.

    Args:
      path: the file; its folder is made if need be.
      resume_step: rows of later steps are dropped, and so is an unfinished last line. -1 keeps
        nothing. The old file is replaced in one rename, and only if something has to go.

    Raises:
      OSError: the file cannot be read or written.
    """

    def __init__(self, path: Path, resume_step: int):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _drop_after(self.path, resume_step)
        self._file = self.path.open("ab")

    def append(self, step: int, row: Mapping[str, Any]) -> None:
        """Writes `{"step": step, **row}`; numbers that are not finite become null.

        Text is stored as ASCII with escapes, so no text, lone surrogates included, is refused.
        """
        line = json.dumps({"step": int(step), **_finite(row)}, allow_nan=False)
        self._file.write(line.encode("ascii") + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Returns once the rows are on the disk itself, safe from a crash of the machine."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class MetricsWriter:
    """Metrics of a run: `metrics.jsonl`, and scalars for TensorBoard under `tensorboard/`.

    A row is `{"step", "kind", "wall_s", name: value, ...}`. `wall_s` counts seconds of work: it
    continues over restarts and leaves out the time between them.

    Args:
      workdir: the run's folder.
      resume_step: last step whose rows are kept; -1 for a run that starts anew.
    """

    def __init__(self, workdir: Path, resume_step: int = -1):
        workdir = pathlib.Path(workdir)
        self._lines = JsonLines(workdir / METRICS, resume_step)
        rows = read_metrics(workdir)
        self._written = {(row["step"], row.get("kind")) for row in rows}
        self._start = time.monotonic() - max((row.get("wall_s") or 0.0 for row in rows), default=0)
        self._events = Events(workdir / TENSORBOARD, first_step=resume_step + 1)

    def write(self, step: int, kind: str, row: Mapping[str, float | Sequence[float]]) -> None:
        """Appends a row and flushes it.

        Args:
          step: updates of pi_old done so far; 0 is the starting policy.
          kind: "train" or "eval".
          row: metric name -> number; a list of numbers goes to the JSON file only.

        Raises:
          ValueError: a value is not a number, or a name is one of step, kind, wall_s.
        """
        if clash := {"step", "kind", "wall_s"} & row.keys():
            raise ValueError(f"metrics row of step {step}: {sorted(clash)} are set by the writer")
        numbers = {name: _number(name, value) for name, value in row.items()}
        wall_s = round(time.monotonic() - self._start, 3)
        self._lines.append(step, {"kind": kind, "wall_s": wall_s, **numbers})
        self._written.add((int(step), kind))
        self._events.write(step, {k: v for k, v in numbers.items() if not isinstance(v, list)})

    def has(self, step: int, kind: str) -> bool:
        """Whether the row is on file already (say, an evaluation done just before a restart)."""
        return (int(step), kind) in self._written

    def sync(self) -> None:
        """Forces rows to the disk; call it before a checkpoint of the same step is committed."""
        self._lines.sync()

    def close(self) -> None:
        self._lines.close()
        self._events.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RolloutWriter:
    """Sampled responses and their rewards: `rollouts.jsonl`, one row per question.

    Arguments as of `MetricsWriter`.
    """

    def __init__(self, workdir: Path, resume_step: int = -1):
        self._lines = JsonLines(pathlib.Path(workdir) / ROLLOUTS, resume_step)

    def write(
        self,
        step: int,
        *,
        question_id: str,
        problem: str,
        golds: Sequence[str],
        level: str = "",
        responses: Sequence[Mapping[str, Any]],
    ) -> None:
        """Appends one question with its responses.

        Args:
          responses: each `{"text": str, "reward": float, "reason": str, "tokens": int,
            "ended": bool}`; reason says why the grader decided so, ended is False where the token
            limit cut the response.
        """
        row = {"question_id": question_id, "problem": problem, "golds": list(golds)}
        self._lines.append(step, {**row, "level": level, "responses": list(responses)})

    def sync(self) -> None:
        self._lines.sync()

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> "RolloutWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` in order; an unfinished last line is left out.

    null is read as nan, also within lists; texts other than the kind are left out. A file that
    does not exist has no rows. An unreadable line before the last is skipped with a warning that
    names it.
    """
    return [
        {k: v if k == "kind" else _numbers(v) for k, v in row.items() if _is_metric(k, v)}
        for row in _read(pathlib.Path(workdir) / METRICS)
    ]


def read_rollouts(workdir: Path, steps: set[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the rows of `rollouts.jsonl`, of the given steps or of all, a line at a time.

    The file may be far larger than memory; lines of other steps are skipped without parsing.
    """
    return _read(pathlib.Path(workdir) / ROLLOUTS, steps)


def rollout_counts(workdir: Path) -> dict[int, int]:
    """Step -> number of questions on file, without parsing the texts."""
    counts: dict[int, int] = {}
    for line in _whole_lines(pathlib.Path(workdir) / ROLLOUTS):
        step = _row_step(line)
        if step is not None:
            counts[step] = counts.get(step, 0) + 1
    return counts


def _drop_after(path: pathlib.Path, resume_step: int) -> None:
    """Removes rows of steps after `resume_step` and an unfinished last line, atomically."""

    def keeps(line: bytes) -> bool:
        step = _row_step(line)
        return step is not None and step <= resume_step

    if not path.exists():
        return
    with path.open("rb") as old:
        if all(keeps(line) for line in old):
            return
    kept = path.with_name(path.name + ".tmp")
    with path.open("rb") as old, kept.open("wb") as new:
        new.writelines(line for line in old if keeps(line))
        new.flush()
        os.fsync(new.fileno())
    os.replace(kept, path)


def _row_step(line: bytes) -> int | None:
    """The step of a whole row; None if the line is unfinished or is not a row."""
    if not line.endswith(b"\n"):
        return None
    if match := _STEP.match(line):
        return int(match[1])
    row = _parse(line)
    return row["step"] if row else None


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _whole_lines(path: pathlib.Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def _read(path: pathlib.Path, steps: set[int] | None = None) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_whole_lines(path), start=1):
        if steps is not None and (match := _STEP.match(line)) and int(match[1]) not in steps:
            continue
        row = _parse(line)
        if row is None:
            warnings.warn(f"{path}:{number}: not a row, skipped", stacklevel=3)
        elif steps is None or row["step"] in steps:
            yield row


def _is_metric(name: str, value: Any) -> bool:
    return name == "kind" or value is None or isinstance(value, int | float | list)


def _numbers(value: Any) -> Any:
    """nan for null and for whatever else is no number, also within a list."""
    if isinstance(value, list):
        return [math.nan if not isinstance(item, int | float) else item for item in value]
    return math.nan if value is None else value


def _number(name: str, value: Any) -> float | list[float]:
    try:
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return [float(item) for item in value]
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"metric {name}={value!r:.80} is not a number or a list of them") from None


def _finite(value: Any) -> Any:
    """The value with nan and infinities replaced by None, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
