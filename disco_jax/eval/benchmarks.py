"""The paper's six benchmarks by name, and a run's scores as a row of the paper's tables."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from disco_jax.data import questions
from disco_jax.eval import paper
from disco_jax.eval.pass_at_k import average, interval
from disco_jax.types import Question


class Benchmark(NamedTuple):
    """A benchmark file of the official repository, and what a reader of its score should know."""

    column: str
    file: str
    rows: int
    note: str = ""


BENCHMARKS: dict[str, Benchmark] = {  # in the column order of the paper's tables
    "aime24": Benchmark("AIME 2024", "aime.parquet", 30),
    "aime25": Benchmark("AIME 2025", "aime25.parquet", 30),
    "math500": Benchmark("MATH 500", "math.parquet", 500),
    "amc23": Benchmark(
        "AMC 2023",
        "amc.parquet",
        83,
        "the file named AMC 2023 holds 43 problems of the AMC 12 of 2022 and 40 of 2023, while the "
        "training set holds AMC problems from before 2023: with config.data.benchmarks set, "
        "training drops what overlaps",
    ),
    "minerva": Benchmark(
        "Minerva", "minerva.parquet", 272, "a list of golds means that any of them is accepted"
    ),
    "olympiad": Benchmark("O-Bench", "olympiad_bench.parquet", 675),
}
SOURCE = (
    "the six files lie in datasets/deepscaler/data of https://github.com/Optimization-AI/DisCO "
    "(verl schema, parquet); put them into one folder and name it"
)


def load(name: str, folder: str) -> list[Question]:
    """The questions of one benchmark, with ids such as `aime24/0`.

    Args:
      name: a key of `BENCHMARKS`.
      folder: where the parquet files are.

    Raises:
      ValueError: an unknown name, a file that is absent, or one with another number of rows.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark={name!r}: one of {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    path = pathlib.Path(folder).expanduser() / benchmark.file
    if not path.is_file():
        raise ValueError(f"benchmark={name!r}: no {benchmark.file} in {folder!r}; {SOURCE}")
    found = questions.load(f"verl(path={str(path)!r})", tolerance=0.0)
    if len(found) != benchmark.rows:
        raise ValueError(f"{path}: {len(found)} questions, the paper's has {benchmark.rows}")
    return [dataclasses.replace(q, id=f"{name}/{i}", source=name) for i, q in enumerate(found)]


def notes(names: Sequence[str]) -> str:
    """What to know about the scores of these benchmarks, one line each; empty where nothing."""
    noted = [name for name in names if name in BENCHMARKS and BENCHMARKS[name].note]
    return "\n".join(f"{BENCHMARKS[n].column}: {BENCHMARKS[n].note}" for n in noted)


def table(
    correct: Mapping[str, np.ndarray], label: str, lengths: str = "", beside: str = ""
) -> str:
    """A run's pass@1 in the paper's columns, its 95 % intervals below, the paper's rows beside it.

    Args:
      correct: benchmark name -> correct_QK; missing benchmarks leave their cells empty, and the
        average (the unweighted mean of the six columns) too.
      label: names the run in the first column.
      lengths: the second column, such as "8k / 8k".
      beside: a key of `paper.TABLES`, or "" for none.

    Raises:
      ValueError: an unknown benchmark or table.
    """
    unknown = [name for name in correct if name not in BENCHMARKS]
    if unknown or (beside and beside not in paper.TABLES):
        raise ValueError(
            f"benchmarks={unknown or list(correct)}, beside={beside!r}: benchmarks are "
            f"{', '.join(BENCHMARKS)}; tables are {', '.join(paper.TABLES)}"
        )
    share_Q = {name: np.asarray(c, float).mean(1) for name, c in correct.items()}
    cells = [interval(share_Q[name]) if name in share_Q else None for name in BENCHMARKS]
    whole = len(share_Q) == len(BENCHMARKS)
    cells.append(average(list(share_Q.values())) if whole else None)
    rows = [
        (row.method, row.lengths, *map(_number, (*row.scores, row.average)))
        for row in (paper.TABLES[beside] if beside else ())
    ]
    rows.append((label, lengths, *(_number(c[0] if c else None) for c in cells)))
    rows.append(("  95 % interval", "", *(f"{c[1]:.3f}-{c[2]:.3f}" if c else "" for c in cells)))
    return _aligned([("Model/Method", "Train/Test", *paper.COLUMNS, "Avg."), *rows])


def figures(summaries: Mapping[str, Mapping[str, float]]) -> str:
    """A line per set of questions, from `Evaluation.summary`, in percent and tokens."""
    heads = "questions of,number,k,pass@1,95 % interval,pass@k,maj@k,length,truncated"
    rows = [tuple(heads.split(","))]
    for name, found in summaries.items():
        k = found["samples"]
        low, high = found["pass@1_low"], found["pass@1_high"]
        cells = [found["pass@1"], found.get(f"pass@{k}", found["pass@1"]), found[f"maj@{k}"]]
        first, best, majority = (f"{100 * cell:.1f}" for cell in cells)
        interval = f"{100 * low:.1f}-{100 * high:.1f}"
        length, cut = f"{found['length_mean']:,.1f}", f"{100 * found['truncated']:.1f}"
        number = str(found["questions"])
        rows.append((name, number, str(k), first, interval, best, majority, length, cut))
    return _aligned(rows, names=1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _aligned(rows: Sequence[Sequence[str]], names: int = 2) -> str:
    """The first `names` columns to the left, the others to the right, a rule below the heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < names else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * sum(widths, 2 * len(widths) - 2), *lines[1:]])
