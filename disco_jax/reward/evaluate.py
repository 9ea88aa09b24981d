"""Values of scalar trees to many digits, with a bound on every number on the way."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

from disco_jax.reward import exact
from disco_jax.reward.exact import TooBig
from disco_jax.reward.tree import Node

DIGITS = 100
MAX_LOG2 = 2_000_000  # binary exponent of any value
MAX_TRIG = 10**12  # larger angles cannot be reduced with `DIGITS`
MAX_GAMMA = 20_000
MAX_NODES = 2_000  # visited for one value


class Unsupported(Exception):
    """The tree has no value at this point."""


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


def _step(round_to: Callable[..., Any]):
    def function(x):
        if isinstance(x, mpmath.mpc) or abs(x) > mpmath.mpf(10) ** (DIGITS - 20):
            raise Unsupported("floor")
        near = mpmath.nint(x)
        return near if abs(x - near) < mpmath.mpf(10) ** -(DIGITS // 2) else round_to(x)

    return function


def _trig(function: Callable[..., Any]):
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


_CIRCULAR = "sin cos tan cot sec csc sinh cosh tanh coth sech csch".split()
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _trig(getattr(mpmath, name)) for name in _CIRCULAR},
    **{f"a{name}": getattr(mpmath, f"a{name}") for name in _CIRCULAR},
    "exp": _exp,
    "ln": _ln,
    "sqrt": mpmath.sqrt,
    "cbrt": lambda x: _root(x, 3),
    "root": _root,
    "abs": abs,
    "sgn": mpmath.sign,
    "cis": lambda x: mpmath.expj(x) if abs(x) < MAX_TRIG else _unknown("cis"),
    "re": mpmath.re,
    "im": mpmath.im,
    "arg": mpmath.arg,
    "floor": _step(mpmath.floor),
    "ceil": _step(mpmath.ceil),
    "factorial": _gamma,
    "factorial2": lambda x: mpmath.fac2(x) if abs(x) < MAX_GAMMA else _unknown("factorial2"),
    "binom": _binomial,
}
