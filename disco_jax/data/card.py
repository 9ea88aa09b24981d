"""The card of a question set: what a person wants to see before training on it."""

import collections
import re
from collections.abc import Sequence

import numpy as np

from disco_jax.types import Question

_KINDS = (  # the first pattern that fits names the kind of an answer
    ("integer", re.compile(r"[+-]?\d{1,3}(?:,\d{3})+|[+-]?\d+")),
    ("decimal", re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")),
    ("fraction", re.compile(r"[+-]?(?:\d+/\d+|\\[dt]?frac\s*\{?\d+\}?\s*\{?\d+\}?)")),
    ("tuple or interval", re.compile(r"(?:\\left)?\s*[(\[].*,.*[)\]]", re.DOTALL)),
    ("several", re.compile(r".*,.*", re.DOTALL)),
    ("words", re.compile(r"(?:\\text\{.*\}|[A-Za-z][A-Za-z ]+)", re.DOTALL)),
)


def kind(gold: str) -> str:
    """The kind of an answer, by its looks: integer, decimal, fraction, ..., or expression."""
    text = gold.strip().strip("$").strip()
    return next((name for name, pattern in _KINDS if pattern.fullmatch(text)), "expression")


def card(questions: Sequence[Question], name: str, prompt_length_Q: Sequence[int] = ()) -> str:
    """A few lines: rows, sources, levels, lengths (tokens where given) and kinds of answers.

    Raises:
      ValueError: no questions, or lengths of another number of questions.
    """
    if not questions or len(prompt_length_Q) not in (0, len(questions)):
        raise ValueError(f"{len(questions)} questions with {len(prompt_length_Q)} prompt lengths")
    lines = [f"{name}: {len(questions)} questions"]
    characters = [len(q.problem) for q in questions]
    lines.append(f"  problem  {_spread(characters)} characters")
    if len(prompt_length_Q):
        lines.append(f"  prompt   {_spread(prompt_length_Q)} tokens")
    lines.append(f"  answers  {_shares(kind(q.golds[0]) for q in questions)}")
    several = sum(len(q.golds) > 1 for q in questions)
    if several:
        lines.append(f"           {several} questions accept more than one answer")
    for label, values in (
        ("sources", [q.source for q in questions if q.source]),
        ("levels", [q.level for q in questions if q.level]),
    ):
        if values:
            lines.append(f"  {label:<8} {_shares(values)}")
    return "\n".join(lines)


def _spread(values: Sequence[int]) -> str:
    low, middle, high, most = np.quantile(values, [0.05, 0.5, 0.95, 1.0])
    return f"median {middle:.0f} (5-95 %: {low:.0f}-{high:.0f}, longest {most:.0f})"


def _shares(values, limit: int = 8) -> str:
    counts = collections.Counter(values)
    shown = [f"{name} {count}" for name, count in counts.most_common(limit)]
    rest = len(counts) - limit
    return ", ".join(shown) + (f", and {rest} more" if rest > 0 else "")
