"""The table of conventions: rules tried in order, each says equal, unequal, or nothing.

rule           what it settles
-------------  --------------------------------------------------------------------------
_labels        `max: 9` is 9 beside a bare 9; two labels must be the same
_modular       `4 (mod 9)`: same residue class and modulus; beside a bare value, the value
_lists         bare lists are unordered multisets; named or labelled items keep their order
               beside unnamed ones; a list in order may stand for a tuple; +- means both
_relations     `x = 5` is 5; another name is another answer; equations agree up to a constant
               factor, inequalities up to a positive one (flipped by a negative one)
_real_sets     intervals, unions, solved inequalities, R: the same set of real numbers
_wrapped       a unit counts only where both sides have one, and then must be the same one;
               p% is p/100 or p, but beside another percent p
_tuples        ordered, brackets matter for pairs; a tuple is a column, not a row's column
_special       bases (may be left off), ratios (proportional), times of day, text
_scalars       mathematical equality, see `numeric`
"""

from disco_jax.reward import numeric, realsets
from disco_jax.reward.structure import canonical, items_of, name_of, spelled_out
from disco_jax.reward.tree import Node, children, num, rebuild, sym, walk

MAX_UNORDERED = 60  # items that are matched pair by pair, after equal spellings
_STRUCTURES = frozenset(
    "list set seq rel matrix text time ratio union inter minus base mod label unit percent".split()
)


def agree(answer: Node, gold: Node) -> bool:
    """Whether two trees are the same answer; symmetric but for rules that favour the gold."""
    answer, gold = canonical(answer), canonical(gold)
    if answer == gold:
        return True
    for rule in RULES:
        verdict = rule(answer, gold)
        if verdict is not None:
            return verdict
    return False


def _labels(a: Node, g: Node) -> bool | None:
    if a.op == "label" and g.op == "label":
        return a.args[0] == g.args[0] and agree(a.args[1], g.args[1])
    if a.op == "label" and g.op != "list":
        return agree(a.args[1], g)
    if g.op == "label" and a.op != "list":
        return agree(a, g.args[1])
    return None


def _modular(a: Node, g: Node) -> bool | None:
    if a.op != "mod" and g.op != "mod":
        return None
    if a.op == "mod" and g.op == "mod":
        if not agree(a.args[1], g.args[1]):
            return False
        x, y = _residue(a.args[0]), _residue(g.args[0])
        if _named(a.args[0]) and _named(g.args[0]) and _named(a.args[0]) != _named(g.args[0]):
            return False
        return agree(x, y) or _same_class(x, y, g.args[1])
    if a.op == "mod":
        return agree(_residue(a.args[0]), g)
    return agree(a, _residue(g.args[0]))


def _residue(tree: Node) -> Node:
    return tree.args[-1] if tree.op == "rel" else tree


def _named(tree: Node) -> str | None:
    return name_of(tree.args[1]) if tree.op == "rel" else None


def _same_class(x: Node, y: Node, modulus: Node) -> bool:
    values = [numeric.real(tree) for tree in (x, y, modulus)]
    if any(v is None for v in values) or not values[2]:
        return False
    turns = (values[0] - values[1]) / values[2]
    return abs(turns) < 10**30 and turns == int(turns)


def _lists(a: Node, g: Node) -> bool | None:
    """Lists, sets and sign choices; inequalities joined by or / and are left to the sets."""
    for named, other in ((a, g), (g, a)):
        solved = _solved(named) if named.op == "rel" and other.op != "rel" else None
        if solved and solved[1].op in ("set", "seq"):
            return agree(*((solved[1], g) if named is a else (a, solved[1])))
    choices = any(n.op == "pm" for tree in (a, g) for n in walk(tree))
    if not choices and not {a.op, g.op} & {"list", "set"}:
        return None
    if _is_condition(a) and _is_condition(g) and {"and", "or"} != {a.args[0], g.args[0]}:
        if len(a.args) == len(g.args) and _unordered(list(a.args[1:]), list(g.args[1:])):
            return True
    if _is_condition(a) or _is_condition(g):
        if realsets.of_tree(a) is not None and realsets.of_tree(g) is not None:
            return None
    if g == Node("const", ("empty",)) or a == Node("const", ("empty",)):
        return False
    if "seq" in (a.op, g.op) and not choices:
        return _list_for_tuple(a, g)
    if {a.op, g.op} & {"union", "inter", "minus", "matrix"} and not choices:
        return _list_for_tuple(a, g) if "matrix" in (a.op, g.op) else None
    left, right = _unnamed(items_of(a), items_of(g))
    if left is None:
        return False
    if a.op == g.op == "set" or choices:
        left, right = _distinct(left), _distinct(right)
    if len(left) != len(right):
        return False
    if _keeps_order(items_of(a)) != _keeps_order(items_of(g)):
        return all(agree(x, y) for x, y in zip(left, right, strict=True))
    return _unordered(left, right)


def _is_condition(tree: Node) -> bool:
    return tree.op == "list" and all(
        item.op == "rel" and item.args[0] != ("=",) for item in tree.args[1:]
    )


def _list_for_tuple(a: Node, g: Node) -> bool:
    """A bare list in the same order may stand for a tuple or column, and the other way round."""
    bare, other = (a, g) if a.op == "list" else (g, a)
    if bare.op != "list" or other.op == "list":
        return False
    if other.op == "seq" and other.args[:2] != ("(", ")") and len(other.args) == 4:
        return False
    items = list(other.args[2:]) if other.op == "seq" else _entries(other)
    if items is None or len(items) != len(bare.args) - 1:
        return False
    values, _ = _unnamed(list(bare.args[1:]), items)
    return values is not None and all(agree(x, y) for x, y in zip(values, items, strict=True))


def _keeps_order(items: list[Node]) -> bool:
    """Whether each item carries a name or label of its own."""
    keys = [_key(item) for item in items]
    return None not in keys and len(set(keys)) > 1


def _key(item: Node) -> str | None:
    if item.op == "label":
        return item.args[0]
    solved = _solved(item)
    return solved[0] if solved else None


def _unnamed(left: list[Node], right: list[Node]):
    """`x = 2, 5, 9` and `a = 4, b = 7` without names beside a list without; (None, None) where
    names contradict."""
    if any(_key(x) is not None for x in left) and all(_key(x) is not None for x in right):
        if _key(left[0]) is not None and all(_key(x) is None for x in left[1:]):
            left = [left[0], *(Node("rel", (("=",), left[0].args[1], x)) for x in left[1:])]
    named = [any(_key(x) is not None for x in side) for side in (left, right)]
    if all(named):
        if all(all(_key(x) is not None for x in side) for side in (left, right)):
            return left, right
        return [_value(x) for x in left], [_value(x) for x in right]
    return [_value(x) for x in left], [_value(x) for x in right]


def _value(item: Node) -> Node:
    if item.op == "label":
        return item.args[1]
    solved = _solved(item)
    return solved[1] if solved else item


def _distinct(items: list[Node]) -> list[Node]:
    found: list[Node] = []
    for item in items:
        if len(found) >= MAX_UNORDERED or not any(agree(item, other) for other in found):
            found.append(item)
    return found


def _unordered(left: list[Node], right: list[Node]) -> bool:
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


def _relations(a: Node, g: Node) -> bool | None:
    if a.op != "rel" and g.op != "rel":
        return None
    solved_a, solved_g = _solved(a), _solved(g)
    if a.op == "rel" and g.op == "rel":
        if solved_a and solved_g and solved_a[0] == solved_g[0]:
            x, y = _same_letters(a, solved_a[1], g, solved_g[1])
            return agree(x, y) or _equations(a, g)
        if a.args[0] == g.args[0] == ("=",):
            return _equations(a, g)
        return _inequalities(a, g)
    if solved_a or solved_g:
        return agree(*((solved_a[1], g) if solved_a else (a, solved_g[1])))
    relation = a if a.op == "rel" else g
    return False if "=" in relation.args[0] else None


def _solved(tree: Node) -> tuple[str | None, Node] | None:
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
    values = sides[1:] if name is not None else sides
    if name is None and any(_symbolic(side) for side in sides):
        return None
    if not all(agree(x, values[-1]) for x in values[:-1]):
        return None
    return name, values[-1]


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


def _inequalities(a: Node, g: Node) -> bool | None:
    found_a, found_g = realsets.of_condition(a), realsets.of_condition(g)
    if found_a and found_g:
        return found_a[0] == found_g[0] and realsets.equal(found_a[1], found_g[1])
    if len(a.args) != 3 or len(g.args) != 3:
        return _chains(a, g)
    sign = numeric.constant_ratio(_difference(a), _difference(g))
    flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
    operator, wanted = a.args[0][0], g.args[0][0]
    if operator not in flipped or sign == 0:
        return operator == wanted and agree(a.args[1], g.args[1]) and agree(a.args[2], g.args[2])
    return (operator if sign > 0 else flipped[operator]) == wanted


def _chains(a: Node, g: Node) -> bool:
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


_SETS = frozenset({"union", "inter", "minus"})


def _real_sets(a: Node, g: Node) -> bool | None:
    if not any(_is_set(tree) for tree in (a, g)):
        return None
    left, right = realsets.of_tree(a), realsets.of_tree(g)
    if left is not None and right is not None:
        return realsets.equal(left, right)
    if a.op == g.op and a.op in _SETS and len(a.args) == len(g.args):
        if a.op == "minus":
            return all(agree(x, y) for x, y in zip(a.args, g.args, strict=True))
        return _unordered(list(a.args), list(g.args))
    return False


def _is_set(tree: Node) -> bool:
    if tree.op in _SETS or (tree.op == "const" and tree.args[0] in ("reals", "empty")):
        return True
    return realsets.of_condition(tree) is not None


def _wrapped(a: Node, g: Node) -> bool | None:
    if a.op == "percent" or g.op == "percent":
        return _percent(a, g)
    if a.op == "unit" and g.op == "unit":
        if a.args[1] != g.args[1]:
            return False
        return agree(a.args[0], g.args[0])
    if a.op == "unit":
        return agree(a.args[0], g)
    if g.op == "unit":
        return agree(a, g.args[0])
    return None


def _percent(a: Node, g: Node) -> bool:
    if a.op == g.op:
        return agree(a.args[0], g.args[0])
    percent, other = (a, g) if a.op == "percent" else (g, a)
    value = percent.args[0]
    hundredth = Node("div", (value, num(100)))
    return agree(value, other) or agree(hundredth, other)


def _tuples(a: Node, g: Node) -> bool | None:
    if not {a.op, g.op} & {"seq", "matrix"}:
        return None
    if a.op == g.op == "seq":
        left, right = a.args[2:], g.args[2:]
        if len(left) != len(right) or (a.args[:2] != g.args[:2] and len(left) == 2):
            return False
        return all(agree(x, y) for x, y in zip(left, right, strict=True))
    rows_a, rows_g = _rows(a), _rows(g)
    if rows_a is None or rows_g is None:
        return False
    if [len(row) for row in rows_a] != [len(row) for row in rows_g]:
        return False
    pairs = zip(rows_a, rows_g, strict=True)
    return all(agree(x, y) for row, wanted in pairs for x, y in zip(row, wanted, strict=True))


def _rows(tree: Node) -> list[tuple[Node, ...]] | None:
    """A matrix's rows; a list of lists is a matrix, a flat tuple a column."""
    if tree.op == "matrix":
        return list(tree.args[1])
    if tree.op != "seq":
        return None
    items = tree.args[2:]
    if all(item.op == "seq" for item in items):
        return [item.args[2:] for item in items]
    return [(item,) for item in items]


def _entries(tree: Node) -> list[Node] | None:
    """The entries of a column."""
    rows = _rows(tree)
    if rows is None or any(len(row) != 1 for row in rows):
        return None
    return [row[0] for row in rows]


def _special(a: Node, g: Node) -> bool | None:
    ops = {a.op, g.op}
    if "base" in ops:
        return _bases(a, g)
    if "time" in ops or "ratio" in ops:
        return _ratios(a, g)
    if "text" in ops:
        return False
    return None


def _bases(a: Node, g: Node) -> bool:
    if a.op == g.op:
        return False  # equal ones are equal trees
    based, other = (a, g) if a.op == "base" else (g, a)
    digits = based.args[0]
    return other.op == "num" and digits.isdigit() and other == num(int(digits))


def _ratios(a: Node, g: Node) -> bool:
    if a.op == g.op == "time":
        (h1, m1, half1), (h2, m2, half2) = a.args, g.args
        if m1 != m2:
            return False
        if half1 and half2 or not (half1 or half2):
            return (h1, half1) == (h2, half2)
        return h1 == h2 or _hour(h1, half1) == _hour(h2, half2)
    left, right = _proportion(a), _proportion(g)
    if left is None or right is None or len(left) != len(right):
        return False
    return all(
        numeric.same(Node("mul", (x, right[0])), Node("mul", (y, left[0])))
        for x, y in zip(left[1:], right[1:], strict=True)
    )


def _hour(hour: int, half: str) -> int:
    return hour if not half else hour % 12 + (12 if half == "pm" else 0)


def _proportion(tree: Node) -> list[Node] | None:
    if tree.op == "ratio":
        return list(tree.args)
    if tree.op == "time" and not tree.args[2] and tree.args[1]:
        return [num(tree.args[0]), num(tree.args[1])]
    if tree.op == "div":
        return list(tree.args)
    return None


def _scalars(a: Node, g: Node) -> bool:
    if a.op in _STRUCTURES or g.op in _STRUCTURES:
        return False
    if _opaque(a) or _opaque(g):
        return numeric.arranged(a) == numeric.arranged(g)
    return numeric.same(a, g)


def _opaque(tree: Node) -> bool:
    return any(n.op in _STRUCTURES and n.op != "unit" and n.op != "matrix" for n in walk(tree))


RULES = (
    _labels,
    _modular,
    _lists,
    _relations,
    _real_sets,
    _wrapped,
    _tuples,
    _special,
    _scalars,
)

__all__ = ["RULES", "agree", "spelled_out", "sym"]
