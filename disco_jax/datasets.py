"""From a configuration to question sets: read, filtered, described, and ready for the sampler."""

import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from disco_jax.command import UserError
from disco_jax.data import card, filters, questions, selection, sets
from disco_jax.data.filters import Dropped
from disco_jax.data.prompts import Tokenizer
from disco_jax.data.selection import Order
from disco_jax.data.sets import QuestionSet
from disco_jax.eval import benchmarks
from disco_jax.report.progress import Progress
from disco_jax.report.tables import printable
from disco_jax.reward import self_check
from disco_jax.types import Question


def train_questions(
    config: Any, tokenizer: Tokenizer, progress: Progress, success: Mapping[str, float]
) -> QuestionSet:
    """Reads `config.data.train` and leaves out duplicates, questions of the benchmarks, those of
    a success rate out of range, ungradable ones and long ones; says what was left out and why.

    Args:
      success: p(q) by question id, empty where it was not measured.

    Raises:
      UserError: unreadable data, no question left, or questions that the configuration refuses.
    """
    data, where = config.data, "config.data.train"
    kept, dropped = filters.duplicates(read(data.train, where))
    if success and not any(q.id in success for q in kept):
        raise UserError(
            f"config.data.success={data.success!r}: none of its questions is in {where}="
            f"{data.train!r}; it must be an evaluation of that very set"
        )
    tests = [q for found in benchmark_questions(config, "all").values() for q in found]
    for part in (
        lambda q: filters.overlap(q, tests),
        lambda q: filters.by_success(q, success, *data.difficulty),
    ):
        kept, more = part(kept)
        dropped += more
    return question_set(config, kept, where, tokenizer, progress, dropped)


def heldout_questions(
    config: Any, tokenizer: Tokenizer, progress: Progress
) -> dict[str, QuestionSet]:
    """What a run is evaluated on: `config.data.heldout`, and benchmarks where they are named.

    Raises as `train_questions`.
    """
    where = "config.data.heldout"
    found = {"heldout": read(config.data.heldout, where)}
    found |= benchmark_questions(config, config.eval.benchmarks)
    return {
        name: question_set(
            config, some, where if name == "heldout" else f"benchmark {name}", tokenizer, progress
        )
        for name, some in found.items()
    }


def benchmark_questions(config: Any, names: str) -> dict[str, list[Question]]:
    """Benchmarks of `config.data.benchmarks` by name, none where no folder is given.

    Args:
      names: comma-separated names, "all" or "".
    """
    folder = config.data.benchmarks
    asked = names.replace(",", " ").split()
    if not folder:
        return {}
    try:
        return {
            name: benchmarks.load(name, folder)
            for name in (benchmarks.BENCHMARKS if asked == ["all"] else dict.fromkeys(asked))
        }
    except (OSError, ValueError) as error:
        raise UserError(f"config.data.benchmarks={folder!r}: {error}") from error


def question_set(
    config: Any,
    found: Sequence[Question],
    where: str,
    tokenizer: Tokenizer,
    progress: Progress,
    dropped: Sequence[Dropped] = (),
) -> QuestionSet:
    """Questions with prompts that fit and golds that the grader reads, and their card, printed.

    Args:
      where: names the questions in messages.
      dropped: what was left out of them before.
    """
    data = config.data
    encode = functools.cache(lambda problem: tokenizer.encode_prompt(problem, data.suffix))
    every = len(found) if data.ungradable == "drop" else 5_000  # a sample tells whether to refuse
    check = functools.partial(self_check, policy=config.reward.policy, sample=every)
    try:
        kept, long = filters.too_long(found, encode, data.prompt_tokens)
        kept, bad = filters.ungradable(kept, check)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    for key, some in (("too_long", long), ("ungradable", bad)):
        if some and data[key] == "refuse":
            raise UserError(
                f"{where}: {_one_line(some)}. Mend those questions, or have them left out:"
                f" --config.data.{key}=drop"
            )
    left_out = [*dropped, *long, *bad]
    if not kept:
        raise UserError(f"{where}: no question is left. {_one_line(left_out)}")
    made = sets.prepare(kept, encode, data.prompt_tokens, tokenizer.pad_id)
    progress.say(card.card(kept, where, made.prompt_length_Q))
    if left_out:
        progress.say(textwrap.indent(filters.report(left_out), "  "))
    return made


def read(spec: str, where: str) -> list[Question]:
    """The questions of a call-like string; raises UserError naming `where` it stands."""
    try:
        return questions.load(spec)
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: {error}") from error


def _one_line(dropped: Sequence[Dropped]) -> str:
    return filters.report(dropped).replace("\n", "; ")


def first_prompt(question_set: QuestionSet, tokenizer: Tokenizer) -> str:
    """The first prompt as the model sees it, with a bar between tokens, for a terminal."""
    return "first prompt, | between tokens: " + printable(tokenizer.show(question_set.prompt(0)))


def make_order(config: Any, train_set: QuestionSet, success: Mapping[str, float]) -> Order:
    """The order of the training questions; raises UserError for one that is not possible."""
    p_Q = np.array([success.get(q.id, np.nan) for q in train_set.questions])
    try:
        return selection.make_order(config.data.order, p_Q if success else None)
    except ValueError as error:
        raise UserError(f"config.data.{error}") from error
