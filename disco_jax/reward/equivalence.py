"""Whether an answer and a gold say the same mathematics.

In order: the same text after normalising; trees that agree under a rule of `compare`; the same
words, where one side is text; the same choice letter; more digits of a measured gold. A text
that is read by no rule earns only by being the gold's own text.
"""

import functools
import re
from fractions import Fraction
from typing import NamedTuple

import mpmath

from disco_jax.reward import compare, exact, numeric, reader, texts
from disco_jax.reward.normalise import clean, squash
from disco_jax.reward.policies import Choice
from disco_jax.reward.tokens import Token, tokenise
from disco_jax.reward.tree import Node, Unreadable
from disco_jax.reward.verdict import Outcome

_MEASURED = re.compile(
    r"([+-]?)\s*(\d+(?:\.\d+)?)\s*"
    r"(?:(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*([+-]?\d{1,4})\s*\}|([+-]?\d{1,4}))"
    r"|[eE]([+-]?\d{1,4}))?(?![\d.])\s*"
)


_GROUP_OF_ZEROS = re.compile(r"\d,0\d\d(?!\d)")  # no list is written 1,000


class Reading(NamedTuple):
    """A text as the grader understands it."""

    key: str  # its normalised spelling
    trees: tuple[Node, ...]  # one, or two where a comma may be a separator of thousands
    words: tuple[str, ...]
    trouble: str  # why there is no tree


def best(text: str, golds: tuple[str, ...]) -> Outcome:
    """1 where any gold agrees; the reason is the first rule that says so.

    Args:
      text: an extracted answer.
      golds: acceptable answers; blank ones never match.
    """
    try:
        answer = read(text)
        for gold in golds:
            if gold.strip() and (reason := _match(answer, text, gold)):
                return Outcome(1, reason)
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
        return Outcome(0, f"unreadable: {type(error).__name__}")
    return Outcome(0, f"unreadable: {answer.trouble}" if answer.trouble else "unequal")


@functools.lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """All a text can mean; golds recur, so readings are remembered."""
    inner = re.fullmatch(r"\s*\$*\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*\$*\s*", text, re.DOTALL)
    cleaned = clean(inner.group(1) if inner else text)
    key = squash(cleaned)
    trees: list[Node] = []
    words: tuple[str, ...] = ()
    trouble = ""
    seen: list[Token] = []
    for thousands in (True,) if _GROUP_OF_ZEROS.search(cleaned) else (True, False):
        try:
            tokens = tokenise(cleaned, thousands=thousands)
            if tokens == seen:
                break
            seen = tokens
            words = words or tuple(texts.words_of(tokens))
            trees.append(texts.read(tokens) or reader.read(tokens))
        except Unreadable as error:
            trouble = str(error)
        except RecursionError:
            trouble = "too deep"
    return Reading(key, tuple(trees), words, "" if trees else trouble)


def _match(answer: Reading, text: str, gold: str) -> str:
    """Why the answer matches this gold; empty where it does not."""
    wanted = read(gold)
    if answer.key and answer.key == wanted.key:
        return "string"
    for left in answer.trees:
        for right in wanted.trees:
            if compare.agree(left, right):
                return "equal"
    if any(tree.op == "text" for tree in (*answer.trees, *wanted.trees)):
        if answer.words and answer.words == wanted.words:
            return "string"
    if _same_choice(text, gold):
        return "choice"
    if _rounds_to(answer, text, wanted, gold):
        return "rounded"
    return ""


def _same_choice(text: str, gold: str) -> bool:
    """A gold that is one capital letter from A to J is a choice."""
    wanted = Choice.letter(gold)
    if wanted is None or wanted not in "ABCDEFGHIJ" or wanted not in gold:
        return False
    return Choice.letter(text) == wanted


def _rounds_to(answer: Reading, text: str, wanted: Reading, gold: str) -> bool:
    """A gold in scientific notation is a rounded one: more digits that round to it are right."""
    measured, given = _literal(gold), _literal(text)
    if measured is None or given is None or not measured[2]:
        return False
    value, digits, _ = measured
    if given[1] <= digits or value == 0:
        return False
    if not any(_same_units(a, w) for a in answer.trees for w in wanted.trees):
        return False
    size = abs(value)
    exponent = 0
    while size >= 10:
        size, exponent = size / 10, exponent + 1
    while size < 1:
        size, exponent = size * 10, exponent - 1
    half = Fraction(10) ** (exponent - digits + 1) / 2
    return abs(given[0] - value) <= half


def _literal(text: str) -> tuple[Fraction, int, bool] | None:
    """(value, significant digits, scientific?) of a decimal or scientific literal, which a unit
    may follow."""
    match = _MEASURED.match(clean(text))
    if match is None:
        return None
    sign, mantissa, *exponents = match.groups()
    exponent = next((e for e in exponents if e), None)
    if len(mantissa) > 60:
        return None
    value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
    digits = len(mantissa.replace(".", "").lstrip("0"))
    value = -value if sign == "-" else value
    trees = [tree.args[0] if tree.op == "unit" else tree for tree in read(text).trees]
    try:
        whole = any(exact.value(tree) == value for tree in trees)  # nothing but the literal
    except (exact.NotRational, exact.TooBig):
        whole = False
    return (value, digits, exponent is not None) if whole else None


def _same_units(a: Node, g: Node) -> bool:
    return a.op != "unit" or g.op != "unit" or a.args[1] == g.args[1]


def real_value(text: str) -> "mpmath.mpf | None":
    """The value of a text that is one real number (a unit or percent sign may follow)."""
    for tree in read(text).trees:
        if tree.op == "unit":
            tree = tree.args[0]
        if tree.op == "percent":
            tree = Node("div", (tree.args[0], Node("num", (Fraction(100),))))
        value = numeric.real(tree)
        if value is not None and mpmath.isfinite(value):
            return value
    return None
