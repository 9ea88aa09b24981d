"""An evaluation: k responses to every question, saved as they finish, and what they amount to.

The sampler and the grader are functions that are passed in. A run that was killed goes on where it
stopped; because the sampler keys its random numbers by (question index, sample), it ends with the
same responses as a run that was not.
"""

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from disco_jax.eval import responses
from disco_jax.eval.pass_at_k import Comparison, compare, interval, maj_at_k, pass_at_1, pass_at_k
from disco_jax.eval.responses import Response
from disco_jax.reward.answer import extract
from disco_jax.types import Question


class Sampled(NamedTuple):
    """One finished response, before grading. `index` is the question's place in the whole set."""

    index: int
    sample: int
    text: str
    length: int
    ended: bool


Finish = Callable[[Sampled], None]
# sample(questions, indices, k, finish): gives `finish` each of the k responses to each question
# when it is complete, in any order. `indices` are the questions' places in the whole set: they,
# and not the places in this call, key the random numbers.
Sample = Callable[[Sequence[Question], Sequence[int], int, Finish], None]
# grade(text, golds): a future whose result has a `reward`, 1 or 0; such as `Grader(...).submit`.
Grade = Callable[[str, tuple[str, ...]], "Future[Any]"]
Answer = Callable[[str], str | None]  # the answer in a response, for majority votes
Progress = Callable[[int, int], None]  # responses done, responses in all


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Graded responses as arrays, Q questions by K samples."""

    questions: tuple[Question, ...]
    correct_QK: np.ndarray  # bool
    length_QK: np.ndarray  # int64, tokens
    ended_QK: np.ndarray  # bool
    answers_QK: tuple[tuple[str | None, ...], ...]

    def summary(self) -> dict[str, float | int]:
        """Plain numbers for a log or a JSON file; intervals are 95 %, over questions."""
        k = self.correct_QK.shape[1]
        mean, low, high = pass_at_1(self.correct_QK)
        numbers: dict[str, float | int] = {
            "questions": len(self.questions),
            "samples": k,
            "pass@1": mean,
            "pass@1_low": low,
            "pass@1_high": high,
        }
        for n in sorted({2**i for i in range(1, k.bit_length())} | ({k} - {1})):
            numbers[f"pass@{n}"] = float(pass_at_k(self.correct_QK, n).mean())
        votes_Q = maj_at_k(self.answers_QK, self.correct_QK)
        for name, value in zip(("", "_low", "_high"), interval(votes_Q), strict=True):
            numbers[f"maj@{k}{name}"] = value
        numbers["length_mean"] = float(self.length_QK.mean())
        numbers["truncated"] = float(1 - self.ended_QK.mean())
        return numbers


def boxed(text: str) -> str | None:
    """The answer in the last box of a response, None where there is none."""
    return extract(text, "auto").text


def evaluate(
    questions: Sequence[Question],
    k: int,
    sample: Sample,
    grade: Grade,
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    answer: Answer = boxed,
    chunk: int = 64,
    progress: Progress | None = None,
) -> Evaluation:
    """Samples, grades and saves what `path` does not hold yet, and returns the evaluation.

    Grading overlaps sampling; a response is written once it is graded.

    Args:
      questions: with ids of their own; the same ones in the same order on every restart.
      k: responses to each question.
      path: the JSON Lines file; see `responses`.
      settings: all that changes a response, checked against the file on a restart.
      chunk: questions given to the sampler at once.
      progress: called after every write.

    Raises:
      ValueError: ids that are not unique, a file of another evaluation, or a sampler that leaves
        out or invents responses.
    """
    if len({q.id for q in questions}) != len(questions) or not questions or k < 1:
        raise ValueError(f"{len(questions)} questions, k={k}: at least one, with ids of their own")
    saved = responses.resume(path, responses.header(questions, k, settings))
    missing = [
        i for i in range(len(questions)) if any((questions[i].id, s) not in saved for s in range(k))
    ]
    pending: deque[tuple[Sampled, Future]] = deque()

    def write(wait: bool) -> None:
        while pending and (wait or pending[0][1].done()):
            one, verdict = pending.popleft()
            new = _response(questions[one.index], one, verdict.result(), answer)
            responses.append(path, [new])
            saved[new.question, new.sample] = new
            if progress:
                progress(len(saved), len(questions) * k)

    for start in range(0, len(missing), chunk):
        indices = missing[start : start + chunk]

        def finish(one: Sampled, asked: Sequence[int] = indices) -> None:
            if one.index not in asked or not 0 <= one.sample < k:
                raise ValueError(
                    f"the sampler gave sample {one.sample} of question {one.index}; asked for "
                    f"samples 0 to {k - 1} of questions {list(asked)[:8]}"
                )
            question = questions[one.index]
            if (question.id, one.sample) not in saved:
                pending.append((one, grade(one.text, question.golds)))
            write(wait=False)

        sample([questions[i] for i in indices], indices, k, finish)
        write(wait=True)
        absent = [(i, s) for i in indices for s in range(k) if (questions[i].id, s) not in saved]
        if absent:
            raise ValueError(
                f"the sampler gave {len(absent)} responses too few; the first is sample "
                f"{absent[0][1]} of question {absent[0][0]}"
            )
    return _evaluation(questions, k, saved)


def saved(path: str | os.PathLike[str], questions: Sequence[Question]) -> Evaluation:
    """The complete evaluation of these questions in one file, whatever its k.

    Raises:
      ValueError: responses are missing (the message says how many), or of other questions.
    """
    head, found = responses.read(path)
    if head != responses.header(questions, head["k"], head["settings"]):
        raise ValueError(f"{path}: not an evaluation of these questions")
    return _evaluation(questions, head["k"], found)


def regrade(
    path: str | os.PathLike[str],
    questions: Sequence[Question],
    grade: Grade,
    answer: Answer = boxed,
    settings: Mapping[str, Any] | None = None,
) -> tuple[int, int]:
    """Grades saved responses anew, without sampling: (wrong to right, right to wrong).

    The file is replaced in one step. `settings` names what is new, such as the grader's policy.

    Raises:
      ValueError: the file holds a response to a question that is not among `questions`.
    """
    head, saved = responses.read(path)
    golds = {q.id: q.golds for q in questions}
    old = list(saved.values())
    strangers = [r.question for r in old if r.question not in golds]
    if strangers:
        raise ValueError(f"{path}: {strangers[0]!r} is not among the questions given")
    verdicts = [grade(r.text, golds[r.question]) for r in old]
    new = [
        r._replace(correct=bool(v.result().reward), answer=answer(r.text))
        for r, v in zip(old, verdicts, strict=True)
    ]
    responses.rewrite(path, {**head, "settings": {**head["settings"], **(settings or {})}}, new)
    change = [int(n.correct) - int(o.correct) for o, n in zip(old, new, strict=True)]
    return change.count(1), change.count(-1)


def paired(a: Evaluation, b: Evaluation) -> Comparison:
    """pass@1 of `b` minus that of `a`, on the same questions.

    Raises:
      ValueError: the questions differ.
    """
    if [q.id for q in a.questions] != [q.id for q in b.questions]:
        raise ValueError("the two evaluations do not hold the same questions in the same order")
    return compare(a.correct_QK.mean(1), b.correct_QK.mean(1))


def training_row(heldout: Evaluation, tests: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Metrics of a training run's evaluation: of the held-out questions, and pass@1 of the tests.

    Args:
      tests: benchmarks by name; `eval/benchmarks` is their unweighted mean.
    """
    k = heldout.correct_QK.shape[1]
    mean, low, high = pass_at_1(heldout.correct_QK)
    row: dict[str, Any] = {
        "eval/pass1": mean,
        "eval/pass1_low": low,
        "eval/pass1_high": high,
        "eval/length": float(heldout.length_QK.mean()),
        "eval/truncated": float(1 - heldout.ended_QK.mean()),
        "eval/histogram": np.bincount(heldout.correct_QK.sum(1), minlength=k + 1).tolist(),
    }
    if k > 1:
        row[f"eval/pass{k}"] = float(pass_at_k(heldout.correct_QK, k).mean())
        row[f"eval/maj{k}"] = float(maj_at_k(heldout.answers_QK, heldout.correct_QK).mean())
    levels = np.array([q.level for q in heldout.questions])
    for level in sorted(set(levels) - {""}):
        row[f"eval/level/{level}"] = float(heldout.correct_QK[levels == level].mean())
    for name, found in tests.items():
        row[f"eval/{name}"] = float(found.correct_QK.mean())
    if tests:
        row["eval/benchmarks"] = float(np.mean([row[f"eval/{name}"] for name in tests]))
    return row


def best_step(scores: Mapping[int, float]) -> int:
    """The training step with the highest validation score; of equals, the earliest.

    Raises:
      ValueError: no scores.
    """
    if not scores:
        raise ValueError("no step has been evaluated")
    return min(scores, key=lambda step: (-scores[step], step))


def _response(question: Question, one: Sampled, verdict: Any, answer: Answer) -> Response:
    return Response(
        question=question.id,
        sample=int(one.sample),
        text=one.text,
        length=int(one.length),
        ended=bool(one.ended),
        correct=bool(verdict.reward),
        answer=answer(one.text),
    )


def _evaluation(questions: Sequence[Question], k: int, saved: responses.Saved) -> Evaluation:
    absent = sum((q.id, s) not in saved for q in questions for s in range(k))
    if absent:
        raise ValueError(f"{absent} of {len(questions) * k} responses are missing")
    rows = [[saved[q.id, s] for s in range(k)] for q in questions]
    return Evaluation(
        questions=tuple(questions),
        correct_QK=np.array([[r.correct for r in row] for row in rows], bool),
        length_QK=np.array([[r.length for r in row] for row in rows], np.int64),
        ended_QK=np.array([[r.ended for r in row] for row in rows], bool),
        answers_QK=tuple(tuple(r.answer for r in row) for row in rows),
    )
