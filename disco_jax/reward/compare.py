"""The table of conventions: rules tried in order, each says equal, unequal, or nothing.

rule           what it settles
-------------  --------------------------------------------------------------------------
_labels        `max: 9` is 9 beside a bare 9; two labels must be the same
_modular       `4 (mod 9)`: same residue class and modulus; beside a bare value, the value
lists          bare lists are unordered multisets; named or labelled items keep their order
               beside unnamed ones; a list in order may stand for a tuple; +- means both
relations      `x = 5` is 5; another name is another answer; equations agree up to a constant
               factor, inequalities up to a positive one (flipped by a negative one)
_real_sets     intervals, unions, solved inequalities, R: the same set of real numbers
_wrapped       a unit counts only where both sides have one, and then must be the same one;
               p% is p/100 or p, but beside another percent p
_tuples        ordered, brackets matter for pairs; a tuple is a column, not a row's column
_special       bases (may be left off), ratios (proportional), times of day, text
_scalars       mathematical equality, see `numeric`
"""

from disco_jax.reward import numeric, realsets
from disco_jax.reward.lists import Agree, lists, unordered
from disco_jax.reward.relations import relations
from disco_jax.reward.structure import canonical, name_of, rows_of
from disco_jax.reward.tree import Node, num, walk

_SETS = frozenset({"union", "inter", "minus"})
_STRUCTURES = frozenset(
    "list set seq rel matrix text time ratio union inter minus base mod label unit percent".split()
)


def agree(answer: Node, gold: Node) -> bool:
    """Whether two trees are the same answer; symmetric but for rules that favour the gold."""
    answer, gold = canonical(answer), canonical(gold)
    if answer == gold:
        return True
    for rule in RULES:
        verdict = rule(answer, gold, agree)
        if verdict is not None:
            return verdict
    return False


def _labels(a: Node, g: Node, agree: Agree) -> bool | None:
    if a.op == "label" and g.op == "label":
        return a.args[0] == g.args[0] and agree(a.args[1], g.args[1])
    if a.op == "label" and g.op != "list":
        return agree(a.args[1], g)
    if g.op == "label" and a.op != "list":
        return agree(a, g.args[1])
    return None


def _modular(a: Node, g: Node, agree: Agree) -> bool | None:
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


def _real_sets(a: Node, g: Node, agree: Agree) -> bool | None:
    if not any(_is_set(tree) for tree in (a, g)):
        return None
    left, right = realsets.of_tree(a), realsets.of_tree(g)
    if left is not None and right is not None:
        return realsets.equal(left, right)
    if a.op == g.op and a.op in _SETS and len(a.args) == len(g.args):
        if a.op == "minus":
            return all(agree(x, y) for x, y in zip(a.args, g.args, strict=True))
        return unordered(list(a.args), list(g.args), agree)
    return False


def _is_set(tree: Node) -> bool:
    if tree.op in _SETS or (tree.op == "const" and tree.args[0] in ("reals", "empty")):
        return True
    return realsets.of_condition(tree) is not None


def _wrapped(a: Node, g: Node, agree: Agree) -> bool | None:
    if a.op == "percent" or g.op == "percent":
        return _percent(a, g, agree)
    if a.op == "unit" and g.op == "unit":
        if a.args[1] != g.args[1]:
            return False
        return agree(a.args[0], g.args[0])
    if a.op == "unit":
        return agree(a.args[0], g)
    if g.op == "unit":
        return agree(a, g.args[0])
    return None


def _percent(a: Node, g: Node, agree: Agree) -> bool:
    if a.op == g.op:
        return agree(a.args[0], g.args[0])
    percent, other = (a, g) if a.op == "percent" else (g, a)
    value = percent.args[0]
    hundredth = Node("div", (value, num(100)))
    return agree(value, other) or agree(hundredth, other)


def _tuples(a: Node, g: Node, agree: Agree) -> bool | None:
    if not {a.op, g.op} & {"seq", "matrix"}:
        return None
    if a.op == g.op == "seq":
        left, right = a.args[2:], g.args[2:]
        if len(left) != len(right) or (a.args[:2] != g.args[:2] and len(left) == 2):
            return False
        return all(agree(x, y) for x, y in zip(left, right, strict=True))
    rows_a, rows_g = rows_of(a), rows_of(g)
    if rows_a is None or rows_g is None:
        return False
    if [len(row) for row in rows_a] != [len(row) for row in rows_g]:
        return False
    pairs = zip(rows_a, rows_g, strict=True)
    return all(agree(x, y) for row, wanted in pairs for x, y in zip(row, wanted, strict=True))


def _special(a: Node, g: Node, _: Agree) -> bool | None:
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


def _scalars(a: Node, g: Node, _: Agree) -> bool:
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
    lists,
    relations,
    _real_sets,
    _wrapped,
    _tuples,
    _special,
    _scalars,
)
