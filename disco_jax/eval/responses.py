"""Saved responses of an evaluation: a JSON Lines file that survives a kill at any moment.

The first line says what was evaluated; each further line is one graded response, appended when it
is done. A line cut off by a kill is cut off the file at the next start, and its response sampled
again. Verdicts can be renewed without sampling.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from disco_jax.types import Question

FORMAT = 1


class Response(NamedTuple):
    """One graded response: sample k of the question with this id.

    `length` counts response tokens, `ended` says that the model stopped by itself, `answer` is the
    text the grader found (None where there is none).
    """

    question: str
    sample: int
    text: str
    length: int
    ended: bool
    correct: bool
    answer: str | None


Saved = dict[tuple[str, int], Response]


def header(questions: Sequence[Question], k: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies an evaluation: the questions, k, and the caller's settings (JSON values).

    Settings name all that changes a response: the weights, temperature, top-p, length limit, seed.
    """
    text = json.dumps([(q.id, q.problem) for q in questions])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    plain = json.loads(json.dumps(dict(settings)))  # tuples become lists, as they will when read
    return {"format": FORMAT, "questions": digest, "k": k, "settings": plain}


def resume(path: str | os.PathLike[str], head: Mapping[str, Any]) -> Saved:
    """Makes the file ready for appending and returns the responses it already holds.

    A new file gets its header; a torn last line is cut off.

    Raises:
      ValueError: the file belongs to another evaluation (the message names what differs), or a
        line other than the last does not parse.
    """
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    data = file.read_bytes() if file.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        file.write_text(json.dumps(dict(head)) + "\n", encoding="utf-8")
        return {}
    found, saved = _parse(file, whole)
    if found != dict(head):
        raise ValueError(
            f"{file}: holds another evaluation: {_difference(found, head)}. "
            "Give it another name (--name) or move that one away"
        )
    if len(whole) < len(data):
        os.truncate(file, len(whole))
    return saved


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Saved]:
    """(header, responses) of a file; a torn last line is ignored. Raises ValueError as `resume`."""
    file = pathlib.Path(path)
    if not file.is_file():
        raise ValueError(f"{file}: no such file of responses")
    data = file.read_bytes()
    return _parse(file, data[: data.rfind(b"\n") + 1])


def append(path: str | os.PathLike[str], responses: Iterable[Response]) -> None:
    """Appends responses in one write."""
    lines = "".join(_line(r) for r in responses)
    with open(path, "a", encoding="utf-8") as file:
        file.write(lines)


def rewrite(
    path: str | os.PathLike[str], head: Mapping[str, Any], responses: Iterable[Response]
) -> None:
    """Replaces the file by another in one step: a reader sees the old one or the new one."""
    new = pathlib.Path(f"{os.fspath(path)}.new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(json.dumps(dict(head)) + "\n")
        file.writelines(_line(r) for r in responses)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def success_rates(*paths: str | os.PathLike[str]) -> dict[str, float]:
    """p(q): the share of right responses of each question id in saved evaluations."""
    right: dict[str, list[bool]] = {}
    for path in paths:
        for response in read(path)[1].values():
            right.setdefault(response.question, []).append(response.correct)
    return {question: float(np.mean(verdicts)) for question, verdicts in right.items()}


def _line(response: Response) -> str:
    return json.dumps(response._asdict()) + "\n"


def _parse(file: pathlib.Path, data: bytes) -> tuple[dict[str, Any], Saved]:
    head: dict[str, Any] = {}
    saved: Saved = {}
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = json.loads(line)
            if number == 1:
                if row["format"] != FORMAT:
                    raise ValueError(f"format {row['format']!r}, this version reads {FORMAT}")
                head = row
                continue
            response = Response(**row)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{file}:{number}: not a line of saved responses: {error}") from None
        saved[response.question, response.sample] = response
    if not head:
        raise ValueError(f"{file}: empty, no header")
    return head, saved


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    def flat(head: Mapping[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in head.items() if key != "settings"}
        return rest | dict(head.get("settings", {}))

    a, b = flat(found), flat(wanted)
    differing = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return ", ".join(f"{key} is {a.get(key)!r} there and {b.get(key)!r} here" for key in differing)
