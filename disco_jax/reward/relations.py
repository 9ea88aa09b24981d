"""Equations, assignments and inequalities."""

from collections.abc import Callable

from disco_jax.reward import numeric, realsets
from disco_jax.reward.structure import name_of
from disco_jax.reward.tree import Node, children, rebuild, walk

_NAMES = frozenset({"sym", "app", "text", "seq"})

Agree = Callable[[Node, Node], bool]


def relations(a: Node, g: Node, agree: Agree) -> bool | None:
    if a.op != "rel" and g.op != "rel":
        return None
    solved_a, solved_g = solved(a, agree), solved(g, agree)
    if a.op == "rel" and g.op == "rel":
        if solved_a and solved_g and solved_a[0] == solved_g[0]:
            x, y = _same_letters(a, solved_a[1], g, solved_g[1])
            return agree(x, y) or _equations(a, g)
        if a.args[0] == g.args[0] == ("=",):
            return _equations(a, g)
        return _inequalities(a, g, agree)
    if solved_a or solved_g:
        return agree(*((solved_a[1], g) if solved_a else (a, solved_g[1])))
    relation = a if a.op == "rel" else g
    return False if "=" in relation.args[0] else None


def solved(tree: Node, agree: Agree) -> tuple[str | None, Node] | None:
    """(name, value) of `x = ... = value`, `x in set`; (None, value) of a calculation."""
    if tree.op != "rel":
        return None
    operators, sides = tree.args[0], tree.args[1:]
    if operators == ("in",):
        name = name_of(sides[0])
        return (name, sides[1]) if name else None
    if operators == ("equiv",) and name_of(sides[0]):
        return name_of(sides[0]), sides[1]
    if set(operators) != {"="}:
        return None
    name = name_of(sides[0])
    if name is None and name_of(sides[-1]) and len(sides) == 2 and not _symbolic(sides[0]):
        return name_of(sides[1]), sides[0]
    if name and sides[0].op not in _NAMES and all(_only_symbols(side) for side in sides):
        return None  # MR = SRMC names nothing
    values = sides[1:] if name is not None else sides
    if name is None and any(_symbolic(side) for side in sides):
        return None
    if not all(agree(x, values[-1]) for x in values[:-1]):
        return None
    return name, values[-1]


def _only_symbols(tree: Node) -> bool:
    return all(n.op in ("sym", "mul") for n in walk(tree))


def _symbolic(tree: Node) -> bool:
    return any(n.op in ("sym", "app", "text") for n in walk(tree))


def _same_letters(a: Node, x: Node, g: Node, y: Node) -> tuple[Node, Node]:
    """`f(t) = 2t` with the gold's letter, where the gold says `f(x) = 2x`."""
    left, right = a.args[1], g.args[1]
    if left.op == right.op == "app" and len(left.args) == len(right.args) == 2:
        old, new = left.args[1], right.args[1]
        if old.op == new.op == "sym" and old != new and new not in set(walk(x)):
            return _replaced(x, old, new), y
    return x, y


def _replaced(tree: Node, old: Node, new: Node) -> Node:
    if tree == old:
        return new
    return rebuild(tree, [_replaced(child, old, new) for child in children(tree)])


def _equations(a: Node, g: Node) -> bool:
    if not (a.args[0] == g.args[0] == ("=",)):
        return False
    return numeric.constant_ratio(_difference(a), _difference(g)) != 0


def _difference(relation: Node) -> Node:
    left, right = relation.args[1], relation.args[2]
    return Node("add", (left, Node("neg", (right,))))


def _inequalities(a: Node, g: Node, agree: Agree) -> bool | None:
    found_a, found_g = realsets.of_condition(a), realsets.of_condition(g)
    if found_a and found_g:
        return found_a[0] == found_g[0] and realsets.equal(found_a[1], found_g[1])
    if len(a.args) != 3 or len(g.args) != 3:
        return _chains(a, g, agree)
    sign = numeric.constant_ratio(_difference(a), _difference(g))
    flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
    operator, wanted = a.args[0][0], g.args[0][0]
    if operator not in flipped or sign == 0:
        return operator == wanted and agree(a.args[1], g.args[1]) and agree(a.args[2], g.args[2])
    return (operator if sign > 0 else flipped[operator]) == wanted


def _chains(a: Node, g: Node, agree: Agree) -> bool:
    """`a < b < c` beside the same chain, forwards or backwards."""
    if len(a.args) != len(g.args):
        return False
    sides, operators = a.args[1:], a.args[0]
    flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
    back = tuple(flipped.get(operator, operator) for operator in reversed(operators))
    for chain, order in ((operators, sides), (back, sides[::-1])):
        if chain == g.args[0] and all(agree(x, y) for x, y in zip(order, g.args[1:], strict=True)):
            return True
    return False
