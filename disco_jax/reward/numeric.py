"""Equality of scalars: exactly where both are rational, else by values at many digits.

Two expressions that agree to 50 digits at several random points are equal for every purpose of a
grader; the digits separate e^(pi sqrt 163) from the integer it almost is. Variables stand for
positive numbers (convention 14), so `sqrt(x^2)` is `x`; where an absolute value is written,
negative values are tried too. Expressions with floors, or signs such as (-1)^n, that differ at
real points are compared at whole numbers when their letters are those of whole numbers.
"""

import hashlib
import random
from fractions import Fraction

import mpmath

from disco_jax.reward import exact
from disco_jax.reward.evaluate import DIGITS, Evaluator, Unsupported
from disco_jax.reward.exact import TooBig
from disco_jax.reward.tree import Node, children, node, num, rebuild, walk

CONSTANT_DIGITS = 320  # without symbols, where equality is not a matter of chance
SLACK = 20  # last digits that may differ
POINTS = 4
WHOLE_POINTS = 24
_WHOLE_LETTERS = frozenset("ijklmnpqNMKrs")
_DISCRETE = frozenset({"floor", "ceil", "factorial", "factorial2", "binom", "gcd", "lcm"})


def same(left: Node, right: Node) -> bool:
    """Whether two scalar trees are equal; False where that cannot be established."""
    left, right = degrees(left), degrees(right)
    try:
        try:
            return exact.value(left) == exact.value(right)
        except exact.NotRational:
            pass
        return any(_agree(left, right, base) for base in _log_bases(left, right))
    except (TooBig, Unsupported, OverflowError, ZeroDivisionError):
        return arranged(left) == arranged(right)


def real(tree: Node) -> "mpmath.mpf | None":
    """The real value of a tree without symbols; None where there is none."""
    try:
        number = Evaluator({}, 10, DIGITS).value(degrees(tree))
    except (TooBig, Unsupported, OverflowError, ZeroDivisionError, ValueError):
        return None
    number = mpmath.mpmathify(number)
    if isinstance(number, mpmath.mpc):
        return number.real if abs(number.imag) < mpmath.mpf(10) ** (SLACK - DIGITS) else None
    return number


def degrees(tree: Node) -> Node:
    """An angle in degrees inside an expression becomes a number of radians."""
    if not any(n.op == "unit" for n in walk(tree)):
        return tree
    below = [degrees(child) for child in children(tree)]
    if tree.op == "unit" and tree.args[1] == (("deg", 1),):
        return node("div", node("mul", below[0], node("const", "pi")), num(180))
    return rebuild(tree, below)


def arranged(tree: Node) -> Node:
    """Sums and products flattened and sorted, a spelling-independent form of opaque trees."""
    below = [arranged(child) for child in children(tree)]
    if tree.op in ("add", "mul"):
        flat: list[Node] = []
        for child in below:
            flat += child.args if child.op == tree.op else [child]
        return Node(tree.op, tuple(sorted(flat, key=repr)))
    return rebuild(tree, below)


def constant_ratio(left: Node, right: Node) -> int:
    """The sign of c where left = c right with a constant c; 0 where there is no such c."""
    names = _names(left) | _names(right)
    if not names:
        return 0
    ratios = []
    try:
        for point in _points(names, POINTS + 1, negative=False):
            evaluator = Evaluator(point, 10, DIGITS)
            a, b = evaluator.value(degrees(left)), evaluator.value(degrees(right))
            if b == 0 or a == 0:
                return 0
            ratios.append(a / b)
    except (TooBig, Unsupported, OverflowError, ZeroDivisionError):
        return 0
    first = ratios[0]
    if not all(_close(ratio, first) for ratio in ratios[1:]):
        return 0
    return 1 if isinstance(first, mpmath.mpc) or first > 0 else -1


def _log_bases(left: Node, right: Node) -> list:
    """`log` without a base is natural or to base 10, the same on both sides."""
    plain = any(
        n.op == "call" and n.args[0] == "log" and len(n.args) == 2
        for tree in (left, right)
        for n in walk(tree)
    )
    return [None, 10] if plain else [None]


def _agree(left: Node, right: Node, base: int | None) -> bool:
    trees = (left, right)
    names = _names(left) | _names(right)
    if not names:
        return _equal_at(trees, {}, base)
    if any(n.op == "sum" and _bounds_vary(n) for tree in trees for n in walk(tree)):
        return all(_equal_at(trees, p, base) for p in _whole_points(names))
    if all(_equal_at(trees, p, base) for p in _points(names, POINTS, negative=_signed(trees))):
        return True
    if names <= _WHOLE_LETTERS and any(_discrete(tree) for tree in trees):
        points = _whole_points(names)
        return all(_equal_at(trees, p, base) for p in points)
    return False


def _bounds_vary(tree: Node) -> bool:
    return bool(_names(tree.args[2]) | _names(tree.args[3]))


def _names(tree: Node) -> set[str]:
    """Symbols, and opaque applications (`x(t)`) by their spelling; bound variables are none."""
    bound = {n.args[1] for n in walk(tree) if n.op == "sum"}
    found = {n.args[0] for n in walk(tree) if n.op == "sym"} - bound
    return found | {repr(n) for n in walk(tree) if n.op == "app"}


def _signed(trees: tuple[Node, ...]) -> bool:
    """Whether an absolute value is written outside a logarithm."""
    inside = {
        id(arg) for t in trees for n in walk(t) if n.op == "call" and n.args[0] in ("ln", "log")
        for arg in n.args[1:]
    }  # fmt: skip
    return any(
        n.op == "call" and n.args[0] in ("abs", "sgn") and id(n) not in inside
        for t in trees
        for n in walk(t)
    )


def _discrete(tree: Node) -> bool:
    for n in walk(tree):
        if n.op == "call" and n.args[0] in _DISCRETE:
            return True
        if n.op == "pow" and n.args[0].op == "neg" and n.args[1].op != "num":
            return True
        if n.op == "call" and n.args[0] in ("cos", "sin"):
            return True
    return False


def _points(names: set[str], count: int, negative: bool) -> list[dict]:
    points = [_point(names, f"point {k}") for k in range(count)]
    if negative:
        points += [
            {name: -x if (k >> i) & 1 else x for i, (name, x) in enumerate(sorted(p.items()))}
            for k, p in ((1, points[0]), (2, points[1]), (3, points[2]))
        ]
    return points


def _point(names: set[str], seed: str) -> dict:
    """Values in (0.3, 2.7), a function of the name and the seed alone."""
    values = {}
    for name in names:
        digest = hashlib.sha256(f"{seed} {name}".encode("utf-8", "replace")).digest()
        values[name] = Fraction(3, 10) + Fraction(int.from_bytes(digest[:12]), 2**96) * 12 / 5
    return values


def _whole_points(names: set[str]) -> list[dict]:
    draw = random.Random(" ".join(sorted(names)))
    return [
        {name: Fraction(draw.randint(1, 12 if k < 12 else 60)) for name in sorted(names)}
        for k in range(WHOLE_POINTS)
    ]


def _equal_at(trees: tuple[Node, Node], point: dict, base: int | None) -> bool:
    """Equal at one point, to more digits where nothing is left to chance (no symbols)."""
    digits = DIGITS if point else CONSTANT_DIGITS
    values = []
    for tree in trees:
        try:
            values.append(_settled(tree, point, base, digits))
        except ZeroDivisionError:
            raise Unsupported("division by zero") from None
    a, b = values
    if not (mpmath.isfinite(a) and mpmath.isfinite(b)):
        return a == b
    return _close(a, b, digits)


def _settled(tree: Node, point: dict, base: int | None, digits: int):
    """A value; exactly 0 where it is rounding noise: noise shrinks with more digits, a small
    value does not."""
    value = Evaluator(point, base, digits).value(tree)
    if not mpmath.isfinite(value) or abs(value) > mpmath.mpf(10) ** (-digits // 2):
        return value
    finer = Evaluator(point, base, 2 * digits).value(tree)
    return value if abs(finer) > abs(value) / 10**6 else mpmath.mpf(0)


def _close(a, b, digits: int = DIGITS) -> bool:
    with mpmath.workdps(digits):
        return abs(a - b) <= mpmath.mpf(10) ** (SLACK - digits) * max(abs(a), abs(b))
