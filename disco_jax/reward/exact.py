"""Exact rational values of trees, with bounds on the size of every number made."""

import math
from fractions import Fraction

from disco_jax.reward.tree import Node

MAX_BITS = 200_000  # of a numerator or denominator
MAX_FACTORIAL = 5_000
MAX_SUM = 2_000  # terms of a sum or product


class NotRational(Exception):
    """The tree has no value here: not rational, symbolic, or of an unknown kind."""


class TooBig(Exception):
    """A number on the way would pass the bounds."""


def value(tree: Node, names: dict[str, Fraction] | None = None) -> Fraction:
    """The rational value of a tree.

    Args:
      tree: scalars only.
      names: values of bound variables (of sums).

    Raises:
      NotRational: no rational value, a division by zero included.
      TooBig: beyond the bounds.
    """
    names = names or {}
    op, args = tree
    if op == "num":
        return args[0]
    if op == "sym" and args[0] in names:
        return names[args[0]]
    if op == "add":
        return _bounded(sum((value(arg, names) for arg in args), Fraction(0)))
    if op == "mul":
        return _bounded(math.prod(value(arg, names) for arg in args))
    if op == "neg":
        return -value(args[0], names)
    if op == "div":
        bottom = value(args[1], names)
        if bottom == 0:
            raise NotRational("division by zero")
        return _bounded(value(args[0], names) / bottom)
    if op == "pow":
        return _power(value(args[0], names), value(args[1], names))
    if op == "call":
        return _call(args[0], [value(arg, names) for arg in args[1:]])
    if op == "sum":
        return _sum(tree, names)
    raise NotRational(op)


def _bounded(x: Fraction) -> Fraction:
    if x.numerator.bit_length() > MAX_BITS or x.denominator.bit_length() > MAX_BITS:
        raise TooBig
    return x


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise NotRational("a root")
    n = exponent.numerator
    if base == 0 and n <= 0:
        raise NotRational("zero to a power that is not positive")
    if abs(base) != 1 and base != 0:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(n) > MAX_BITS:
            raise TooBig
    elif abs(base) == 1:
        return base if n % 2 else Fraction(1)
    return base**n if base or n > 0 else Fraction(0)


def _call(name: str, args: list[Fraction]) -> Fraction:
    if name == "abs" and len(args) == 1:
        return abs(args[0])
    if name in ("floor", "ceil") and len(args) == 1:
        return Fraction(math.floor(args[0]) if name == "floor" else math.ceil(args[0]))
    if name in ("max", "min") and args:
        return max(args) if name == "max" else min(args)
    if name == "sqrt" and len(args) == 1:
        return _root(args[0])
    if not all(arg.denominator == 1 for arg in args):
        raise NotRational(name)
    whole = [arg.numerator for arg in args]
    if name in ("gcd", "lcm") and whole:
        return _bounded(Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole)))
    if name in ("factorial", "factorial2") and len(whole) == 1 and whole[0] >= 0:
        return _factorial(whole[0], 1 if name == "factorial" else 2)
    if name == "binom" and len(whole) == 2 and whole[0] >= 0:
        return _binomial(*whole)
    raise NotRational(name)


def _root(x: Fraction) -> Fraction:
    if x < 0 or x.numerator.bit_length() > 10_000:
        raise NotRational("a root")
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root * root != x:
        raise NotRational("a root")
    return root


def _factorial(n: int, step: int) -> Fraction:
    if n > MAX_FACTORIAL:
        raise TooBig
    return Fraction(math.factorial(n) if step == 1 else math.prod(range(n, 0, -2)))


def _binomial(n: int, k: int) -> Fraction:
    if n > MAX_BITS and 2 < k < n - 2 or n.bit_length() * min(abs(k), abs(n - k)) > MAX_BITS:
        raise TooBig
    return Fraction(math.comb(n, k) if 0 <= k <= n else 0)


def _sum(tree: Node, names: dict[str, Fraction]) -> Fraction:
    kind, name, lower, upper, body = tree.args
    low, high = value(lower, names), value(upper, names)
    if low.denominator != 1 or high.denominator != 1:
        raise NotRational("bounds")
    if high - low > MAX_SUM or len(names) > 1:
        raise TooBig
    total = Fraction(0 if kind == "sum" else 1)
    for k in range(int(low), int(high) + 1):
        term = value(body, {**names, name: Fraction(k)})
        total = _bounded(total + term if kind == "sum" else total * term)
    return total
