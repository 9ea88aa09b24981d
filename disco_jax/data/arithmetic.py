"""Built-in questions: multi-step integer arithmetic with worked steps.

    Compute (17+5)*3-8.        17+5=22
                               22*3=66
                               66-8=58
                               \\boxed{58}

Small enough for a model of a few million parameters, graded in difficulty (the level is the number
of operations), and endless: questions are drawn from a seed, the same ones on every machine and
Python version. Training and held-out questions can never meet, whatever the seeds and sizes: a
hash of the expression, blind to the order of the operands of + and *, decides the split.
"""

import ast
import hashlib
import random
import re
from collections.abc import Sequence

from disco_jax.types import Question

LIMIT = 10_000  # every intermediate value x has |x| < LIMIT
SPLITS = ("train", "heldout")
HELDOUT_SHARE = 8  # one expression in eight is held out

Tree = int | tuple[str, "Tree", "Tree"]  # (operator, left, right)
_APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_PROBLEM = re.compile(r"Compute ([0-9+*()-]{1,200})\.")


def arithmetic(
    split: str,
    size: int,
    seed: int = 0,
    levels: Sequence[int] = (1, 2, 3, 4, 5),
    digits: int = 3,
) -> list[Question]:
    """`size` different questions; the levels take turns, so any prefix is balanced.

    Args:
      split: "train" or "heldout"; disjoint for all seeds, sizes, levels and digits.
      seed: another seed, another draw from the same split.
      levels: numbers of operations, each at least 1.
      digits: operands have 1 to `digits` digits, shorter ones more often. One factor of every
        product is a single digit.

    Raises:
      ValueError: an unknown split, a level or digit count out of range, or fewer than `size`
        different expressions found under these settings.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: one of {', '.join(SPLITS)}")
    whole = isinstance(size, int) and isinstance(digits, int) and isinstance(levels, Sequence)
    if not (whole and size > 0 and levels and set(levels) <= set(range(1, 10)) and 0 < digits < 4):
        raise ValueError(
            f"size={size!r}, levels={levels!r}, digits={digits!r}: integers, "
            "size at least 1, levels a tuple of 1 to 9, digits from 1 to 3"
        )
    # Only `Random.random` is promised to give the same numbers in every version of Python.
    rng = random.Random(f"arithmetic {split} {seed}")
    questions, seen, misses = [], set(), 0
    while len(questions) < size:
        level = levels[len(questions) % len(levels)]
        tree = _draw(rng, level, digits)
        key = _key(tree)
        if key in seen or split_of(key) != split or (value := _value(tree)) is None:
            misses += 1
            if misses > 10_000:
                raise ValueError(
                    f"size={size}: no more than {len(questions)} different questions found with "
                    f"levels={tuple(levels)}, digits={digits}; ask for fewer or widen these"
                )
            continue
        misses = 0
        seen.add(key)
        expression = _render(tree)
        questions.append(
            Question(
                id=f"arithmetic/{expression}",
                problem=f"Compute {expression}.",
                golds=(str(value),),
                source="arithmetic",
                level=str(level),
            )
        )
    return questions


def worked_example(question: Question) -> str:
    """The steps in the order of evaluation, one operation a line, then the boxed answer.

    Negative numbers are bracketed on the right of an operator: `6-(-3)=9`.

    Raises:
      ValueError: `question` is not of this data set.
    """
    lines: list[str] = []

    def reduce(tree: Tree) -> int:
        if isinstance(tree, int):
            return tree
        operator, a, b = tree[0], reduce(tree[1]), reduce(tree[2])
        value = _APPLY[operator](a, b)
        lines.append(f"{a}{operator}{b if b >= 0 else f'({b})'}={value}")
        return value

    answer = reduce(parse(question.problem))
    return "\n".join([*lines, f"\\boxed{{{answer}}}"])


def parse(problem: str) -> Tree:
    """The expression tree of a problem text of this data set; ValueError for any other text."""
    match = _PROBLEM.fullmatch(problem)
    if not match:
        raise ValueError(f"{problem[:80]!r} is not a problem such as 'Compute (17+5)*3-8.'")
    try:
        return _tree(ast.parse(match[1], mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{problem[:80]!r} does not parse") from None


def split_of(key: str) -> str:
    """The split an expression belongs to, by the hash of its canonical form."""
    return SPLITS[hashlib.sha256(key.encode()).digest()[0] % HELDOUT_SHARE == 0]


def _tree(node: ast.expr) -> Tree:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)], _tree(node.left), _tree(node.right)
    raise ValueError(f"{ast.unparse(node)!r}: only integers, + - * and brackets")


def _draw(rng: random.Random, operations: int, digits: int) -> Tree:
    if operations == 0:
        size = 1 + int(min(rng.random(), rng.random()) * digits)  # shorter ones more often
        low = 10 ** (size - 1)
        return low + int(rng.random() * 9 * low)
    left = int(rng.random() * operations)
    operator = "+-*"[int(rng.random() * 3)]
    return operator, _draw(rng, left, digits), _draw(rng, operations - 1 - left, digits)


def _value(tree: Tree) -> int | None:
    """The value, or None where a step leaves the limits or has two many-digit factors."""
    if isinstance(tree, int):
        return tree
    a, b = _value(tree[1]), _value(tree[2])
    if a is None or b is None or (tree[0] == "*" and min(abs(a), abs(b)) > 9):
        return None
    value = _APPLY[tree[0]](a, b)
    return value if abs(value) < LIMIT else None


def _render(tree: Tree) -> str:
    """Text with the fewest brackets that still parses back to this very tree."""
    if isinstance(tree, int):
        return str(tree)
    operator, left, right = tree
    rank = _PRECEDENCE[operator]

    def side(child: Tree, least: int) -> str:
        text = _render(child)
        bare = isinstance(child, int) or _PRECEDENCE[child[0]] >= least
        return text if bare else f"({text})"

    return f"{side(left, rank)}{operator}{side(right, rank + 1)}"


def _key(tree: Tree) -> str:
    """Canonical form: 3+4 and 4+3 share one."""
    if isinstance(tree, int):
        return str(tree)
    sides = [_key(tree[1]), _key(tree[2])]
    if tree[0] != "-":
        sides.sort()
    return f"({sides[0]}{tree[0]}{sides[1]})"
