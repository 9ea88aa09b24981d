"""Graded rollouts on file, whole: to train on them again, or to study them.

    rollouts/000012.jsonl.gz     step 12: a header, then one line per question

A line holds a question's prompt and its N responses: tokens, log-probabilities, text, reward and
reason, and every other field of `Rollouts`. Which axes a field has, its name says; padding is not
written. Reading gives back the very same arrays: a float32 is written with the fewest digits that
tell it from its neighbours. `zcat FILE | jq` shows what is inside.
"""

import gzip
import json
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from disco_jax.types import Rollouts

FORMAT = 1
_DTYPES = {"b": np.bool_, "i": np.int32, "f": np.float32}


class Saved(NamedTuple):
    """The graded rollouts of one step.

    Attributes:
      step: counts from 1, as in every record of a run.
      policy: fingerprint of the weights that sampled.
      temperature: of `rollouts.logp_QNT`.
      question_ids: Q of them.
      rollouts: the responses.
      reward_QN: float32.
      texts, reasons: [Q][N], what was graded and why it was given its reward.
    """

    step: int
    policy: str
    temperature: float
    question_ids: list[str]
    rollouts: Rollouts
    reward_QN: np.ndarray
    texts: list[list[str]]
    reasons: list[list[str]]


def path(folder: str | os.PathLike, step: int) -> pathlib.Path:
    """The file of a step."""
    return pathlib.Path(folder) / f"{step:06d}.jsonl.gz"


def write(folder: str | os.PathLike, saved: Saved) -> pathlib.Path:
    """Writes a step; the file appears whole or not at all, and depends on nothing but `saved`."""
    file = path(folder, saved.step)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    head = {
        "format": FORMAT,
        "step": saved.step,
        "policy": saved.policy,
        "temperature": saved.temperature,
        "questions": len(saved.question_ids),
    }
    with open(part, "wb") as raw:
        with gzip.GzipFile("", "wb", compresslevel=5, fileobj=raw, mtime=0) as packed:
            for row in [head, *map(lambda q: _row(saved, q), range(len(saved.question_ids)))]:
                packed.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        raw.flush()
        os.fsync(raw.fileno())
    os.replace(part, file)
    return file


def read(
    folder: str | os.PathLike, step: int, *, prompt_tokens: int, max_tokens: int, pad_id: int
) -> Saved:
    """Reads a step, padded to prompts of `prompt_tokens` and responses of `max_tokens`.

    Raises:
      ValueError: no such file, a file of another format, a damaged line, groups of unequal sizes,
        or a prompt or response that is too long. The message names the file and the line.
    """
    file = path(folder, step)
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; step {step} was not saved there") from None
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from error
    try:
        head, *questions = rows
        if head["format"] != FORMAT or head["step"] != step or head["questions"] != len(questions):
            raise ValueError(f"the header says {head} before {len(questions)} questions")
        found = (step, str(head["policy"]), float(head["temperature"]))
        ids = [str(row["question_id"]) for row in questions]
        answers = [row["responses"] for row in questions]
        reward_QN = np.array([[r["reward"] for r in row] for row in answers], np.float32)
        texts, reasons = ([[str(r[k]) for r in row] for row in answers] for k in ("text", "reason"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: not saved rollouts: {type(error).__name__}: {error}") from None
    lengths = {"P": prompt_tokens, "T": max_tokens}
    columns: dict[str, list] = {name: [] for name in Rollouts._fields}
    for number, row in enumerate(questions, 2):
        try:
            for name, values in _columns(row, lengths, pad_id).items():
                columns[name].append(values)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{file}:{number}: {type(error).__name__}: {error}") from None
    rollouts = Rollouts(**{name: np.stack(column) for name, column in columns.items()})
    return Saved(*found, ids, rollouts, reward_QN, texts, reasons)


def _row(saved: Saved, q: int) -> dict[str, Any]:
    """A question's line: fields without N at the top, the others in its responses."""
    rollouts = saved.rollouts
    row: dict[str, Any] = {"question_id": saved.question_ids[q]}
    responses = [
        {"text": text, "reward": float(reward), "reason": reason}
        for text, reward, reason in zip(
            saved.texts[q], saved.reward_QN[q], saved.reasons[q], strict=True
        )
    ]
    for field, array in rollouts._asdict().items():
        name, axes = field.rsplit("_", 1)
        values = np.asarray(array[q])
        if "N" not in axes:
            row[name] = _plain(values[-rollouts.prompt_length_Q[q] :] if "P" in axes else values)
            continue
        for n, response in enumerate(responses):
            length = rollouts.length_QN[q, n]
            response[name] = _plain(values[n, :length] if "T" in axes else values[n])
    return {**row, "responses": responses}


def _plain(values: np.ndarray) -> Any:
    """Numbers as JSON takes them, float32 with its own few digits."""
    if values.dtype == np.float32:
        return values.astype(str).astype(float).tolist()
    return values.tolist()


def _columns(row: dict[str, Any], lengths: dict[str, int], pad_id: int) -> dict[str, np.ndarray]:
    """The fields of `Rollouts` of one question, without their first axis."""
    return {field: _column(row, field, lengths, pad_id) for field in Rollouts._fields}


def _column(row: dict[str, Any], field: str, lengths: dict[str, int], pad_id: int) -> np.ndarray:
    name, axes = field.rsplit("_", 1)
    values = [r[name] for r in row["responses"]] if "N" in axes else [row[name]]
    if axes[-1] not in lengths:
        array = np.asarray(values)
        column = array.astype(_DTYPES[array.dtype.kind])
        return column if "N" in axes else column[0]
    width = lengths[axes[-1]]
    live = [r["length"] for r in row["responses"]] if "N" in axes else [row["prompt_length"]]
    first = np.asarray(values[0])
    fill = pad_id if first.dtype.kind == "i" else 0
    column = np.full((len(values), width), fill, _DTYPES[first.dtype.kind])
    for out, value, length in zip(column, values, live, strict=True):
        if not 0 < length <= width or len(value) != length:
            raise ValueError(
                f"{name} has {len(value)} entries, {length} announced; from 1 to {width} fit"
            )
        out[slice(width - length, None) if axes[-1] == "P" else slice(length)] = value
    return column if "N" in axes else column[0]
