"""The whitelisted tree that answers are read into. Nothing outside `OPS` can be built."""

from fractions import Fraction
from typing import Any, NamedTuple

OPS = {
    # scalars
    "num": "Fraction",
    "sym": "name",
    "const": "pi, e, i, inf, or a set: reals, integers, naturals, rationals, complexes, empty",
    "add": "terms...",
    "mul": "factors...",
    "div": "top, bottom",
    "neg": "value",
    "pow": "base, exponent",
    "pm": "left or None, right, sign (+1 for plus-or-minus, -1 for minus-or-plus)",
    "call": "function name, arguments...",
    "app": "symbol applied to arguments: name, arguments...",
    "sum": "sum or prod, variable name, lower, upper, body",
    "base": "digits, base",
    # what wraps a scalar
    "unit": "value, unit key",
    "percent": "value",
    "mod": "value or relation, modulus",
    "label": "label, value",
    # structures
    "seq": "left bracket, right bracket, items...",
    "set": "items...",
    "list": "separator (comma, and, or), items...",
    "ratio": "items...",
    "time": "hour, minute, am, pm or an empty text",
    "rel": "operators (a tuple of = < <= > >= != in equiv approx), sides...",
    "union": "sets...",
    "inter": "sets...",
    "minus": "set, set taken away",
    "matrix": "kind, rows (a tuple of tuples)",
    "text": "words (a tuple)",
}


class Node(NamedTuple):
    """An operation and its arguments: nodes, or the plain values `OPS` names."""

    op: str
    args: tuple[Any, ...]


class Unreadable(ValueError):
    """The text is not an answer of the known forms; the message says where reading stopped."""


def node(op: str, *args: Any) -> Node:
    """A node of a whitelisted operation."""
    if op not in OPS:
        raise Unreadable(f"no operation {op}")
    return Node(op, args)


def num(value: int | Fraction) -> Node:
    return Node("num", (Fraction(value),))


def sym(name: str) -> Node:
    return Node("sym", (name,))


def children(tree: Node) -> list[Node]:
    """The nodes directly below, those of a matrix's cells included."""
    if tree.op == "matrix":
        return [cell for row in tree.args[1] for cell in row]
    return [arg for arg in tree.args if isinstance(arg, Node)]


def rebuild(tree: Node, new: list[Node]) -> Node:
    """`tree` with its children replaced, in the order of `children`."""
    fresh = iter(new)
    if tree.op == "matrix":
        rows = tuple(tuple(next(fresh) for _ in row) for row in tree.args[1])
        return Node("matrix", (tree.args[0], rows))
    args = tuple(next(fresh) if isinstance(arg, Node) else arg for arg in tree.args)
    return Node(tree.op, args)


def walk(tree: Node):
    """All nodes of the tree, the root first."""
    stack = [tree]
    while stack:
        here = stack.pop()
        yield here
        stack.extend(children(here))


def symbols(tree: Node) -> frozenset[str]:
    """Names of the free symbols."""
    return frozenset(n.args[0] for n in walk(tree) if n.op == "sym")
