"""Question sets by call-like strings: `arithmetic(split="train", size=512)`, `dapo(path=...)`.

Every reader yields rows with the place each came from; rows that hold no question are dropped and
reported by place and reason, never silently. Text of the files is only ever data: it is decoded as
JSON, CSV or parquet and never run.
"""

import logging
from collections.abc import Callable, Iterator

from disco_jax import calls
from disco_jax.data import files
from disco_jax.data.arithmetic import arithmetic
from disco_jax.data.filters import Dropped
from disco_jax.data.prompts import SUFFIX
from disco_jax.types import Question

# What DAPO-Math-17k puts around each problem; replaced by this project's own prompt.
DAPO_BEFORE = "Solve the following math problem step by step."
DAPO_AFTER = "Remember to put your answer on its own line after"


def load(spec: str, tolerance: float = 0.01) -> list[Question]:
    """The questions of a set; dropped rows are logged as one warning.

    Args:
      spec: one of the readers of `READERS`, such as `deepscaler(path="deepscaler.json")`.
      tolerance: largest share of rows that may be dropped.

    Raises:
      ValueError: an unknown reader or parameter, a file that is absent or of another format, a
        column that no row has, no question at all, or more rows dropped than tolerated.
    """
    questions, dropped = read(spec)
    rows = len(questions) + len(dropped)
    shown = "; ".join(f"{d.where}: {d.kind} {d.detail}".strip() for d in dropped[:3])
    if not questions:
        raise ValueError(f"data={spec!r}: no questions in {rows} rows. {shown}")
    if len(dropped) > tolerance * rows:
        raise ValueError(
            f"data={spec!r}: {len(dropped)} of {rows} rows hold no question, more than "
            f"{tolerance:.0%}. {shown}. Mend the file or name the right columns"
        )
    if dropped:
        logging.getLogger(__name__).warning(
            "data=%r: dropped %d of %d rows: %s", spec, len(dropped), rows, shown
        )
    return questions


def read(spec: str) -> tuple[list[Question], list[Dropped]]:
    """The questions of a set and the rows that were dropped. Raises as `load`, for the spec."""
    questions: list[Question] = []
    dropped: list[Dropped] = []
    rows = calls.build(spec, READERS, "data")
    try:
        for row in rows:
            (questions if isinstance(row, Question) else dropped).append(row)
    except ValueError as error:
        raise ValueError(f"data={spec!r}: {error}") from error
    return questions, dropped


def golds(value: object) -> tuple[str, ...]:
    """Accepted answers of a cell: a text, a number, or a list of these; () where there is none.

    >>> golds(142.0), golds("025"), golds(["9.6\\n", "9.60"]), golds(None)
    (('142',), ('025',), ('9.6', '9.60'), ())
    """
    values = value if isinstance(value, (list, tuple)) else [value]
    texts = []
    for one in values:
        if isinstance(one, float) and one == one and one.is_integer() and abs(one) < 2**53:
            one = int(one)
        known = isinstance(one, (str, int)) or (isinstance(one, float) and one == one)
        text = str(one).strip() if known else ""
        if text and text not in texts:
            texts.append(text)
    return tuple(texts)


def _columns(
    rows: Iterator[files.Row],
    source: str,
    problem: str,
    answer: str,
    level: str = "",
    name: str = "",
) -> Iterator[Question | Dropped]:
    """Questions of rows with named columns; `level` and `name` (an id) may be absent."""
    for where, row in rows:
        if not isinstance(row, dict):
            yield Dropped(where, "unreadable", str(row))
            continue
        missing = [c for c in (problem, answer, level, name) if c and c not in row]
        if missing:
            have = ", ".join(map(str, list(row)[:12]))
            yield Dropped(where, "no column", f"{missing[0]!r} (has: {have})")
            continue
        yield _question(
            where,
            problem=row[problem],
            answer=row[answer],
            source=source,
            level=row[level] if level else "",
            name=row[name] if name else "",
        )


def _question(where, problem, answer, source, level="", name="") -> Question | Dropped:
    if not isinstance(problem, str) or not problem.strip():
        return Dropped(where, "empty problem")
    accepted = golds(answer)
    if not accepted:
        return Dropped(where, "no answer", repr(answer)[:60])
    number = where.rpartition(":")[2]
    return Question(
        id=f"{source}/{name or number}",
        problem=problem.strip(),
        golds=accepted,
        source=source,
        level="" if level is None else str(level),
    )


def _named(reader: Callable[[str], Iterator[files.Row]]) -> Callable[..., Iterator]:
    def of_columns(path, problem="problem", answer="answer", level="", name=""):
        return _columns(reader(path), files.stem(path), problem, answer, level, name)

    return of_columns


def verl(path: str, suffix: str = SUFFIX) -> Iterator[Question | Dropped]:
    """Rows of the verl schema: prompt = one user turn, reward_model.ground_truth = the answer.

    `suffix` is taken off the end of the prompt, because the prompt's own suffix is added later.
    """
    source = files.stem(path)
    for where, row in files.by_extension(path):
        if not isinstance(row, dict):
            yield Dropped(where, "unreadable", str(row))
            continue
        turns, reward = row.get("prompt"), row.get("reward_model")
        if not isinstance(turns, list) or not isinstance(reward, dict):
            yield Dropped(where, "no column", "prompt and reward_model of the verl schema")
            continue
        roles = [t.get("role") if isinstance(t, dict) else None for t in turns]
        if roles != ["user"]:
            yield Dropped(where, "not one user turn", str(roles))
            continue
        content = turns[0].get("content")
        if isinstance(content, str) and suffix:
            content = content.removesuffix(suffix)
        yield _question(where, content, reward.get("ground_truth"), source)


def deepscaler(path: str) -> Iterator[Question | Dropped]:
    """DeepScaleR-Preview: a JSON list of objects with `problem` and `answer`."""
    return _columns(files.by_extension(path), "deepscaler", "problem", "answer")


def dapo(path: str) -> Iterator[Question | Dropped]:
    """DAPO-Math-17k: the verl schema, each problem many times, with instructions of its own.

    A problem is read once: a row with the same problem and answer is skipped without report (the
    published file holds about a hundred copies of each). The instructions around it are removed.
    """
    seen = set()
    for item in verl(path):
        if isinstance(item, Question):
            key = (item.problem, item.golds)
            if key in seen:
                continue
            seen.add(key)
            item = Question(item.id, _dapo_problem(item.problem), item.golds, "dapo")
        yield item


def _dapo_problem(text: str) -> str:
    if text.startswith(DAPO_BEFORE) and "\n\n" in text:
        text = text.split("\n\n", 1)[1]
    head, mark, _ = text.rpartition("\n\n" + DAPO_AFTER)
    return (head if mark else text).strip()


def hub(
    repo: str,
    split: str = "train",
    problem: str = "problem",
    answer: str = "answer",
    level: str = "",
    config: str = "",
) -> Iterator[Question | Dropped]:
    """A data set of the Hugging Face hub, through the `datasets` package (extra `hub`)."""
    return _columns(files.hub(repo, split, config), repo, problem, answer, level)


READERS: dict[str, Callable[..., Iterator[Question | Dropped] | list[Question]]] = {
    "arithmetic": arithmetic,
    "json": _named(files.json_rows),
    "jsonl": _named(files.jsonl_rows),
    "csv": _named(files.csv_rows),
    "parquet": _named(files.parquet_rows),
    "verl": verl,
    "deepscaler": deepscaler,
    "dapo": dapo,
    "hub": hub,
}
