"""What is left out of a training set, and why. Nothing is dropped without an entry in the report.

Each filter takes questions and returns (kept, dropped), in order; none looks at a model. What needs
the tokenizer, the grader or measured success rates is passed in.
"""

import collections
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from disco_jax.types import Question


class Dropped(NamedTuple):
    """A row or question that was left out. `kind` groups the report, `detail` says more."""

    where: str
    kind: str
    detail: str = ""


Filtered = tuple[list[Question], list[Dropped]]
# (index, gold, reason) of every gold that does not match itself; such as `reward.self_check`.
Check = Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[int, str, str]]]
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_DRESSING = re.compile(r"\\(?:left|right|displaystyle|dfrac|tfrac|,|;|!|quad|qquad)|[${}.,;:?!]")


def too_long(
    questions: Sequence[Question], encode: Callable[[str], Sequence[int]], limit: int
) -> Filtered:
    """Drops questions whose prompt has more than `limit` tokens; they are never cut."""

    def reason(question: Question) -> tuple[str, str] | None:
        length = len(encode(question.problem))
        return (f"prompt over {limit} tokens", f"{length} tokens") if length > limit else None

    return _split(questions, map(reason, questions))


def duplicates(questions: Sequence[Question]) -> Filtered:
    """Keeps the first of the questions that have the same words, numbers and symbols."""
    first: dict[tuple[str, ...], Question] = {}

    def reason(question: Question) -> tuple[str, str] | None:
        other = first.setdefault(words(question.problem), question)
        if other is question:
            return None
        same = set(other.golds) & set(question.golds)
        return "duplicate" if same else "duplicate with another answer", f"of {other.id}"

    return _split(questions, map(reason, questions))


def ungradable(questions: Sequence[Question], check: Check) -> Filtered:
    """Drops questions none of whose golds the grader can read, by the grader's own self-check."""
    bad: dict[int, dict[str, str]] = collections.defaultdict(dict)
    for index, gold, why in check([q.golds for q in questions]):
        bad[index][gold] = why

    def reason(index: int, question: Question) -> tuple[str, str] | None:
        if not all(gold in bad[index] for gold in question.golds):
            return None
        gold = question.golds[0]
        return "ungradable answer", f"{gold[:60]!r}: {bad[index][gold]}"

    return _split(questions, map(reason, range(len(questions)), questions))


def overlap(
    questions: Sequence[Question],
    benchmarks: Iterable[Question],
    n: int = 8,
    share: float = 0.5,
) -> Filtered:
    """Drops questions that repeat a benchmark question, or most of one.

    Texts are compared as words, numbers and symbols, without case, spacing and LaTeX dressing. Two
    texts match if they share at least `share` of the n-grams of the shorter one, or are equal
    where one has fewer than n tokens. A single common n-gram would not do: competition problems end
    on the same formulas ("where m and n are relatively prime positive integers").
    """
    tests = [(b.id, grams(b.problem, n)) for b in benchmarks]
    if not tests:
        return list(questions), []
    index: dict[tuple[str, ...], list[int]] = collections.defaultdict(list)
    for i, (_, found) in enumerate(tests):
        for gram in found:
            index[gram].append(i)

    def reason(question: Question) -> tuple[str, str] | None:
        mine = grams(question.problem, n)
        hits = collections.Counter(i for gram in mine for i in index.get(gram, ()))
        for i, count in hits.most_common():
            name, theirs = tests[i]
            part = count / min(len(mine), len(theirs))
            if part >= share:
                return "overlaps a benchmark", f"{name}: {part:.0%} of the {n}-grams"
        return None

    return _split(questions, map(reason, questions))


def by_success(
    questions: Sequence[Question],
    success: Mapping[str, float],
    low: float = 0.0,
    high: float = 1.0,
) -> Filtered:
    """Keeps questions whose measured success rate p(q) is in [low, high].

    `success` maps question ids to rates (`responses.success_rates` reads them from a saved
    evaluation); a question without a rate is kept.
    """

    def reason(question: Question) -> tuple[str, str] | None:
        p = success.get(question.id)
        if p is None or low <= p <= high:
            return None
        return ("too hard" if p < low else "too easy"), f"p(q) = {p:.2f}"

    return _split(questions, map(reason, questions))


def report(dropped: Sequence[Dropped], examples: int = 3) -> str:
    """One line for each kind of reason: how many, and the first few by name."""
    kinds: dict[str, list[Dropped]] = collections.defaultdict(list)
    for one in dropped:
        kinds[one.kind].append(one)
    lines = []
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(
            f"{d.where} ({d.detail})" if d.detail else d.where for d in found[:examples]
        )
        more = ", ..." if len(found) > examples else ""
        lines.append(f"dropped {len(found):>6}  {kind}: {shown}{more}")
    return "\n".join(lines) or "nothing dropped"


def words(text: str) -> tuple[str, ...]:
    """Words, numbers and symbols of a text, in lower case, without LaTeX dressing."""
    return tuple(_TOKEN.findall(_DRESSING.sub(" ", text.lower())))


def grams(text: str, n: int) -> frozenset[tuple[str, ...]]:
    """The different n-grams of a text; the whole text where it has fewer than n tokens."""
    tokens = words(text)
    if len(tokens) < n:
        return frozenset([tokens])
    return frozenset(tokens[i : i + n] for i in range(len(tokens) - n + 1))


def _split(questions: Iterable[Question], reasons: Iterable[tuple[str, str] | None]) -> Filtered:
    kept: list[Question] = []
    dropped: list[Dropped] = []
    for question, why in zip(questions, reasons, strict=True):
        if why is None:
            kept.append(question)
        else:
            dropped.append(Dropped(question.id, *why))
    return kept, dropped
