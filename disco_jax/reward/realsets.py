"""Sets of real numbers as unions of intervals: brackets matter, spelling does not.

`(0,25) \\setminus \\{4\\}`, `(0,4) \\cup (4,25)` and `0 < x < 4 or 4 < x < 25` are one set.
"""

import itertools
from typing import NamedTuple

import mpmath

from disco_jax.reward import numeric
from disco_jax.reward.tree import Node

MAX_PARTS = 200
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class Edge(NamedTuple):
    """A place on the line: a value and which side of it (-1 just below, 0 at it, +1 above)."""

    value: "mpmath.mpf"
    side: int


class Part(NamedTuple):
    """All places from `low` to `high`; a closed end lies beyond its value, an open one within."""

    low: Edge
    high: Edge


Reals = list[Part]
_ALL: Reals = [Part(Edge(-mpmath.inf, 1), Edge(mpmath.inf, -1))]


def interval(left: str, low, high, right: str) -> Reals:
    """`left` and `right` are brackets; an infinite end is open however it is written."""
    start = Edge(low, -1 if left == "[" and mpmath.isfinite(low) else 1)
    stop = Edge(high, 1 if right == "]" and mpmath.isfinite(high) else -1)
    return [Part(start, stop)] if start < stop else []


def union(*sets: Reals) -> Reals:
    """Merged and in order."""
    parts = sorted(part for s in sets for part in s)
    merged: Reals = []
    for part in parts:
        if merged and _reach(merged[-1].high, part.low):
            last = merged.pop()
            part = Part(last.low, max(last.high, part.high))
        merged.append(part)
    return merged


def _reach(high: Edge, low: Edge) -> bool:
    """Whether nothing lies between the end of one part and the start of the next."""
    if _same(high.value, low.value):
        return high.side >= low.side
    return high.value > low.value


def intersection(a: Reals, b: Reals) -> Reals:
    pairs = itertools.product(a, b)
    parts = [Part(max(p.low, q.low), min(p.high, q.high)) for p, q in pairs]
    return union([part for part in parts if part.low < part.high])


def difference(a: Reals, b: Reals) -> Reals:
    rest = _ALL
    for part in union(b):
        below = Part(Edge(-mpmath.inf, 1), part.low)
        above = Part(part.high, Edge(mpmath.inf, -1))
        outside = [p for p in (below, above) if p.low < p.high]
        rest = intersection(rest, outside)
    return intersection(a, rest)


def equal(a: Reals, b: Reals) -> bool:
    a, b = union(a), union(b)
    return len(a) == len(b) and all(
        _same(p.low.value, q.low.value)
        and _same(p.high.value, q.high.value)
        and (p.low.side, p.high.side) == (q.low.side, q.high.side)
        for p, q in zip(a, b, strict=True)
    )


def _same(x, y) -> bool:
    return x == y or (mpmath.isfinite(x) and mpmath.isfinite(y) and numeric._close(x, y))


def of_tree(tree: Node) -> Reals | None:
    """The set a tree describes; None where it describes none (or not one of real numbers)."""
    op, args = tree
    if op == "const":
        return {"reals": _ALL, "empty": []}.get(args[0])
    if op == "seq" and len(args) == 4:
        low, high = numeric.real(args[2]), numeric.real(args[3])
        if low is None or high is None or not low < high:
            return None
        return interval(args[0], low, high, args[1])
    if op == "set" and len(args) <= MAX_PARTS:
        points = [numeric.real(item) for item in args]
        if any(x is None or not mpmath.isfinite(x) for x in points):
            return None
        return union([Part(Edge(x, -1), Edge(x, 1)) for x in points])
    if op in ("union", "inter", "minus") and len(args) <= MAX_PARTS:
        sets = [of_tree(arg) for arg in args]
        if any(s is None for s in sets):
            return None
        combine = {"union": union, "inter": intersection, "minus": difference}[op]
        result = sets[0]
        for s in sets[1:]:
            result = combine(result, s)
        return result
    if op in ("rel", "list"):
        named = of_condition(tree)
        return None if named is None else named[1]
    return None


def of_condition(tree: Node) -> tuple[Node, Reals] | None:
    """The variable and its set, from a solved inequality or several joined by and / or."""
    if tree.op == "list":
        found = [of_condition(item) for item in tree.args[1:]]
        if any(f is None for f in found) or len({f[0] for f in found}) != 1:
            return None
        combine = union if tree.args[0] == "or" else intersection
        result = found[0][1]
        for _, s in found[1:]:
            result = combine(result, s)
        return found[0][0], result
    if tree.op != "rel":
        return None
    operators, sides = tree.args[0], tree.args[1:]
    variables = {side for side in sides if side.op == "sym"}
    if len(variables) != 1 or sum(side.op == "sym" for side in sides) != 1:
        return None
    variable = variables.pop()
    if operators == ("in",) and sides[0] == variable:
        inside = of_tree(sides[1])
        return None if inside is None else (variable, inside)
    return _chain(variable, operators, sides)


def _chain(variable: Node, operators: tuple, sides: tuple) -> tuple[Node, Reals] | None:
    """`x < 3`, `1 < x <= 4`, `x != 2`."""
    result = _ALL
    place = sides.index(variable)
    if len(sides) > 3 or (len(sides) == 3 and place != 1):
        return None
    for index, operator in enumerate(operators):
        other = sides[index + 1] if index == place else sides[index]
        bound = numeric.real(other)
        if bound is None:
            return None
        if index != place:
            operator = _FLIP.get(operator, operator)
        if operator in ("<", "<="):
            part = interval("(", -mpmath.inf, bound, "]" if operator == "<=" else ")")
        elif operator in (">", ">="):
            part = interval("[" if operator == ">=" else "(", bound, mpmath.inf, ")")
        elif operator in ("=", "!="):
            point = [Part(Edge(bound, -1), Edge(bound, 1))]
            part = point if operator == "=" else difference(_ALL, point)
        else:
            return None
        result = intersection(result, part)
    return variable, result
