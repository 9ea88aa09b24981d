"""Lists, sets, sign choices, and lists that stand for tuples."""

from collections.abc import Callable

from disco_jax.reward import realsets
from disco_jax.reward.relations import solved
from disco_jax.reward.structure import entries, items_of
from disco_jax.reward.tree import Node, node, walk

MAX_UNORDERED = 60  # items that are matched pair by pair, after equal spellings

Agree = Callable[[Node, Node], bool]


def lists(a: Node, g: Node, agree: Agree) -> bool | None:
    """Lists, sets and sign choices; inequalities joined by or / and are left to the sets."""
    for named, other in ((a, g), (g, a)):
        found = solved(named, agree) if named.op == "rel" and other.op != "rel" else None
        if found and found[1].op in ("set", "seq"):
            return agree(*((found[1], g) if named is a else (a, found[1])))
    choices = any(n.op == "pm" for tree in (a, g) for n in walk(tree))
    if not choices and not {a.op, g.op} & {"list", "set"}:
        return None
    if _is_condition(a) and _is_condition(g) and {"and", "or"} != {a.args[0], g.args[0]}:
        if len(a.args) == len(g.args) and unordered(list(a.args[1:]), list(g.args[1:]), agree):
            return True
    if _is_condition(a) or _is_condition(g):
        if realsets.of_tree(a) is not None and realsets.of_tree(g) is not None:
            return None
    if g == Node("const", ("empty",)) or a == Node("const", ("empty",)):
        return False
    if "seq" in (a.op, g.op) and not choices:
        return _list_for_tuple(a, g, agree)
    if {a.op, g.op} & {"union", "inter", "minus", "matrix"} and not choices:
        return _list_for_tuple(a, g, agree) if "matrix" in (a.op, g.op) else None
    left, right = _unnamed(items_of(a), items_of(g), agree)
    if a.op == g.op == "set" or choices:
        left, right = _distinct(left, agree), _distinct(right, agree)
    if len(left) != len(right):
        return False
    if _keeps_order(items_of(a), agree) != _keeps_order(items_of(g), agree):
        return all(agree(x, y) for x, y in zip(left, right, strict=True))
    return unordered(left, right, agree)


def _is_condition(tree: Node) -> bool:
    if tree.op != "list" or not all(item.op == "rel" for item in tree.args[1:]):
        return False
    return any(item.args[0] != ("=",) for item in tree.args[1:])


def _list_for_tuple(a: Node, g: Node, agree: Agree) -> bool:
    """A bare list in the same order may stand for a tuple or column, and the other way round."""
    bare, other = (a, g) if a.op == "list" else (g, a)
    if bare.op != "list" or other.op == "list":
        return False
    if other.op == "seq" and other.args[:2] != ("(", ")") and len(other.args) == 4:
        return False
    items = list(other.args[2:]) if other.op == "seq" else entries(other)
    if items is None or len(items) != len(bare.args) - 1:
        return False
    values, _ = _unnamed(list(bare.args[1:]), items, agree)
    return all(agree(x, y) for x, y in zip(values, items, strict=True))


def _keeps_order(items: list[Node], agree: Agree) -> bool:
    """Whether each item carries a name or label of its own."""
    keys = [_key(item, agree) for item in items]
    return None not in keys and len(set(keys)) > 1


def _key(item: Node, agree: Agree) -> str | None:
    if item.op == "label":
        return item.args[0]
    found = solved(item, agree)
    return found[0] if found else None


def _unnamed(left: list[Node], right: list[Node], agree: Agree) -> tuple[list[Node], list[Node]]:
    """Both without names, unless every item on both sides has one: `a = 4, b = 7` beside `4, 7`.
    In `x = 2, 5, 9` the name is that of every item."""
    both = []
    for items in (left, right):
        keys = [_key(item, agree) for item in items]
        if keys[0] is not None and set(keys[1:]) == {None} and items[0].op == "rel":
            name = items[0].args[1]
            items = [items[0], *(node("rel", ("=",), name, item) for item in items[1:])]
        both.append(items)
    if all(_key(item, agree) is not None for items in both for item in items):
        return both[0], both[1]
    return [_value(x, agree) for x in both[0]], [_value(x, agree) for x in both[1]]


def _value(item: Node, agree: Agree) -> Node:
    if item.op == "label":
        return item.args[1]
    found = solved(item, agree)
    return found[1] if found else item


def _distinct(items: list[Node], agree: Agree) -> list[Node]:
    found: list[Node] = []
    for item in items:
        if len(found) >= MAX_UNORDERED or not any(agree(item, other) for other in found):
            found.append(item)
    return found


def unordered(left: list[Node], right: list[Node], agree: Agree) -> bool:
    rest = list(right)
    unmatched = []
    for item in left:
        if item in rest:
            rest.remove(item)
        else:
            unmatched.append(item)
    if len(unmatched) > MAX_UNORDERED:
        return False
    for item in unmatched:
        match = next((k for k, other in enumerate(rest) if agree(item, other)), None)
        if match is None:
            return False
        rest.pop(match)
    return True
