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
from disco_jax.reward.exact import TooBig
from disco_jax.reward.tree import Node, children, node, num, rebuild, walk

DIGITS = 60
AGREE = 45  # digits that must agree
POINTS = 4
WHOLE_POINTS = 24
MAX_LOG2 = 2_000_000  # binary exponent of any value
MAX_TRIG = 10**12  # larger angles cannot be reduced with `DIGITS`
MAX_GAMMA = 20_000
MAX_NODES = 2_000  # of a tree that is evaluated at points
_WHOLE_LETTERS = frozenset("ijklmnpqNMKrs")
_DISCRETE = frozenset({"floor", "ceil", "factorial", "factorial2", "binom", "gcd", "lcm"})


class Unsupported(Exception):
    """The tree has no value at this point."""


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
        return number.real if abs(number.imag) < mpmath.mpf(10) ** -AGREE else None
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
    if all(_equal_at(trees, p, base) for p in _points(names, POINTS, negative=_signed(trees))):
        return True
    if names <= _WHOLE_LETTERS and any(_discrete(tree) for tree in trees):
        points = _whole_points(names)
        return all(_equal_at(trees, p, base) for p in points)
    return False


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
    """Equal at one point; a point at which both have no value says nothing against equality."""
    values = []
    for tree in trees:
        try:
            values.append(Evaluator(point, base, DIGITS).value(tree))
        except ZeroDivisionError:
            raise Unsupported("division by zero") from None
    a, b = values
    if not (mpmath.isfinite(a) and mpmath.isfinite(b)):
        return a == b
    if _close(a, b):
        return True
    if max(abs(a), abs(b)) > mpmath.mpf(10) ** -20:
        return False
    # Both tiny: rounding noise around zero shrinks with more digits, a small value does not.
    fine = [Evaluator(point, base, 3 * DIGITS).value(tree) for tree in trees]
    return _close(*fine) or max(map(abs, fine)) < mpmath.mpf(10) ** (-2 * DIGITS)


def _close(a, b) -> bool:
    with mpmath.workdps(DIGITS):
        return abs(a - b) <= mpmath.mpf(10) ** -AGREE * max(abs(a), abs(b))


class Evaluator:
    """Values of trees at a point.

    Args:
      point: name -> Fraction.
      log_base: what `log` without a base means; None is the natural logarithm.
      digits: decimal digits of the arithmetic.
    """

    def __init__(self, point: dict, log_base: int | None, digits: int):
        self.point = point
        self.log_base = log_base
        self.digits = digits
        self.left = MAX_NODES

    def value(self, tree: Node):
        """An mpf or mpc.

        Raises:
          Unsupported, TooBig: no value, or one beyond the bounds.
        """
        with mpmath.workdps(self.digits):
            try:
                return self._value(tree)
            except (ValueError, TypeError, AttributeError) as error:
                raise Unsupported(str(error)) from None

    def _value(self, tree: Node):
        self.left -= 1
        if self.left < 0:
            raise TooBig
        op, args = tree
        if op == "num":
            return _mpf(args[0])
        if op == "sym" or op == "app":
            return self._symbol(args[0] if op == "sym" else repr(tree))
        if op == "const":
            return _constant(args[0])
        if op == "add":
            return mpmath.fsum(map(self._value, args))
        if op == "mul":
            return mpmath.fprod(map(self._value, args))
        if op == "neg":
            return -self._value(args[0])
        if op == "div":
            return self._value(args[0]) / self._nonzero(args[1])
        if op == "pow":
            return self._power(*args)
        if op == "call":
            return self._call(args[0], args[1:])
        if op == "sum":
            return self._sum(*args)
        raise Unsupported(op)

    def _symbol(self, name: str):
        if name not in self.point:
            raise Unsupported(f"symbol {name}")
        return _mpf(self.point[name])

    def _nonzero(self, tree: Node):
        x = self._value(tree)
        if x == 0 or abs(x) < mpmath.mpf(10) ** (-self.digits + 5) and tree.op in ("add", "sum"):
            raise ZeroDivisionError
        return x

    def _power(self, base: Node, exponent: Node):
        x, y = self._value(base), self._value(exponent)
        if x == 0:
            if mpmath.re(y) <= 0:
                raise ZeroDivisionError
            return mpmath.mpf(0)
        if not (mpmath.isfinite(x) and mpmath.isfinite(y)):
            raise Unsupported("an infinite power")
        _bound(abs(mpmath.log(x, 2)) * abs(y))
        try:
            ratio = exact.value(exponent)
        except (exact.NotRational, TooBig):
            return mpmath.power(x, y)
        if ratio.denominator == 1:
            return x ** int(ratio)
        return _rational_power(x, ratio)

    def _sum(self, kind: str, name: str, lower: Node, upper: Node, body: Node):
        low, high = self._value(lower), self._value(upper)
        if not (mpmath.isfinite(high) and mpmath.isint(low) and mpmath.isint(high)):
            raise Unsupported("bounds")
        if high - low > exact.MAX_SUM:
            raise TooBig
        inner = Evaluator(dict(self.point), self.log_base, self.digits)
        inner.left = self.left * 50
        values = []
        for k in range(int(low), int(high) + 1):
            inner.point[name] = Fraction(k)
            values.append(inner._value(body))
        return mpmath.fsum(values) if kind == "sum" else mpmath.fprod(values)

    def _call(self, name: str, trees: tuple[Node, ...]):
        if name == "det":
            return self._determinant(trees[0])
        args = [self._value(tree) for tree in trees]
        if not all(mpmath.isfinite(x) for x in args):
            raise Unsupported("an infinite argument")
        if name == "log":
            base = args[1] if len(args) == 2 else self.log_base or mpmath.e
            return mpmath.log(self._positive(args[0])) / mpmath.log(base)
        if name in ("max", "min", "gcd", "lcm"):
            return self._several(name, args)
        return _FUNCTIONS[name](*args) if name in _FUNCTIONS else _unknown(name)

    @staticmethod
    def _positive(x):
        if x == 0:
            raise ZeroDivisionError
        return x

    @staticmethod
    def _several(name: str, args: list):
        if any(isinstance(x, mpmath.mpc) for x in args) or not args:
            raise Unsupported(name)
        if name in ("max", "min"):
            return max(args) if name == "max" else min(args)
        if not all(mpmath.isint(x) and abs(x) < 10**50 for x in args):
            raise Unsupported(name)
        return mpmath.mpf(int(exact._call(name, [Fraction(int(x)) for x in args])))

    def _determinant(self, tree: Node):
        if tree.op != "matrix" or len(tree.args[1]) != len(tree.args[1][0]):
            raise Unsupported("det")
        return mpmath.det(mpmath.matrix([[self._value(x) for x in row] for row in tree.args[1]]))


def _mpf(x: Fraction):
    if max(x.numerator.bit_length(), x.denominator.bit_length()) > exact.MAX_BITS:
        raise TooBig
    return mpmath.mpf(x.numerator) / x.denominator


def _constant(name: str):
    if name == "pi":
        return +mpmath.pi
    if name == "e":
        return +mpmath.e
    if name == "i":
        return mpmath.mpc(0, 1)
    if name == "inf":
        return mpmath.inf
    raise Unsupported(name)


def _bound(log2_size) -> None:
    if log2_size > MAX_LOG2:
        raise TooBig


def _rational_power(x, ratio: Fraction):
    """A real root where there is one: the cube root of -8 is -2."""
    odd = ratio.denominator % 2 == 1
    if odd and not isinstance(x, mpmath.mpc) and x < 0:
        root = mpmath.power(-x, mpmath.mpf(ratio.numerator) / ratio.denominator)
        return -root if ratio.numerator % 2 else root
    return mpmath.power(x, mpmath.mpf(ratio.numerator) / ratio.denominator)


def _unknown(name: str):
    raise Unsupported(name)


def _exp(x):
    _bound(abs(x) * 2)
    return mpmath.exp(x)


def _ln(x):
    return mpmath.log(Evaluator._positive(x))


def _root(x, degree):
    if not (mpmath.isint(degree) and 0 < abs(degree) < 10**6):
        return mpmath.power(x, 1 / Evaluator._positive(degree))
    return _rational_power(x, Fraction(1, int(degree)))


def _step(round_to):
    def function(x):
        if isinstance(x, mpmath.mpc) or abs(x) > mpmath.mpf(10) ** (DIGITS - 20):
            raise Unsupported("floor")
        near = mpmath.nint(x)
        return near if abs(x - near) < mpmath.mpf(10) ** -(DIGITS // 2) else round_to(x)

    return function


def _trig(function):
    def bounded(x):
        if abs(x) > MAX_TRIG:
            raise TooBig
        return function(x)

    return bounded


def _gamma(x):
    if abs(x) > MAX_GAMMA:
        raise TooBig
    return mpmath.gamma(x + 1)


def _binomial(n, k):
    if max(abs(n), abs(k)) > MAX_GAMMA:
        raise TooBig
    return mpmath.binomial(n, k)


_FUNCTIONS = {
    **{n: _trig(getattr(mpmath, n)) for n in "sin cos tan cot sec csc sinh cosh tanh coth sech csch".split()},
    **{n: getattr(mpmath, n) for n in "asin acos atan acot asec acsc asinh acosh atanh acoth asech acsch".split()},
    "exp": _exp,
    "ln": _ln,
    "sqrt": mpmath.sqrt,
    "cbrt": lambda x: _root(x, 3),
    "root": _root,
    "abs": abs,
    "sgn": mpmath.sign,
    "re": mpmath.re,
    "im": mpmath.im,
    "arg": mpmath.arg,
    "floor": _step(mpmath.floor),
    "ceil": _step(mpmath.ceil),
    "factorial": _gamma,
    "factorial2": lambda x: mpmath.fac2(x) if abs(x) < MAX_GAMMA else _unknown("factorial2"),
    "binom": _binomial,
}  # fmt: skip
