"""Trees into the shape in which they are compared: sign choices spelled out, wrappers outside."""

import itertools

from disco_jax.reward import numeric
from disco_jax.reward.tree import Node, Unreadable, children, node, num, rebuild, walk

MAX_CHOICES = 4  # sign choices in one expression, so 16 values
MAX_ITEMS = 400
ROUNDING = 0.05  # relative, at most, between a value and what is written behind an approx sign


def canonical(tree: Node) -> Node:
    """Labels of no meaning gone, approximations behind an exact value gone, units outside,
    scalar factors inside matrices."""
    tree = rebuild(tree, [canonical(child) for child in children(tree)])
    if tree.op == "neg" and tree.args[0].op in ("unit", "percent"):
        inner = tree.args[0]
        return Node(inner.op, (node("neg", inner.args[0]), *inner.args[1:]))
    if tree.op == "neg" and tree.args[0].op == "matrix":
        return _scaled(num(-1), tree.args[0])
    if tree.op == "mul" and len(tree.args) == 2 and tree.args[1].op == "matrix":
        return _scaled(*tree.args)
    if tree.op == "add" and all(arg.op == "matrix" for arg in tree.args):
        return _matrix_sum(tree)
    if tree.op == "add" and any(arg.op == "unit" for arg in tree.args):
        return _unit_outside(tree)
    if tree.op == "rel":
        return _exact_part(tree)
    if tree.op == "list":
        return _without_domains(tree)
    return tree


def _scaled(factor: Node, matrix: Node) -> Node:
    kind, rows = matrix.args
    return node("matrix", kind, tuple(tuple(node("mul", factor, x) for x in row) for row in rows))


def _matrix_sum(tree: Node) -> Node:
    shapes = {tuple(map(len, matrix.args[1])) for matrix in tree.args}
    if len(shapes) != 1:
        return tree
    grids = [matrix.args[1] for matrix in tree.args]
    rows = (zip(*level, strict=True) for level in zip(*grids, strict=True))
    return node("matrix", "p", tuple(tuple(node("add", *cell) for cell in row) for row in rows))


def _unit_outside(tree: Node) -> Node:
    """`180^\\circ - 2x` is an angle in degrees, whether or not every term says so."""
    keys = {arg.args[1] for arg in tree.args if arg.op == "unit"}
    if len(keys) != 1:
        return tree
    inner = [arg.args[0] if arg.op == "unit" else arg for arg in tree.args]
    return node("unit", node("add", *inner), keys.pop())


def _exact_part(tree: Node) -> Node:
    """`x = 7/12 \\approx 0.583` without its last side; `x \\approx 0.583` is `x = 0.583`."""
    operators, sides = tree.args[0], tree.args[1:]
    if "approx" not in operators:
        return tree
    first = operators.index("approx")
    if not _roughly_equal(sides[first], sides[first + 1]):
        return tree
    if first == 0 and name_of(sides[0]) is None:
        return sides[0]
    if first == 0:
        return node("rel", ("=",), *sides[:2])
    return node("rel", operators[:first], *sides[: first + 1])


def _without_domains(tree: Node) -> Node:
    """`k\\pi, k \\in Z` without its second item, which only says what k is."""
    kept = [
        item
        for index, item in enumerate(tree.args[1:], 1)
        if not (
            item.op == "rel"
            and item.args[0] == ("in",)
            and item.args[2].op == "const"
            and any(item.args[1] in walk(other) for other in tree.args[1:] if other is not item)
        )
    ]
    return kept[0] if len(kept) == 1 else node("list", tree.args[0], *kept)


def _roughly_equal(exact: Node, rounded: Node) -> bool:
    """False where two numbers differ by more than rounding does: `5 \\approx 6` is no 5."""
    values = [numeric.real(side) for side in (exact, rounded)]
    if any(value is None for value in values):
        return True
    return abs(values[0] - values[1]) <= ROUNDING * max(map(abs, values))


def name_of(side: Node) -> str | None:
    """What a left-hand side names: `x`, `f(x)`, `m_max`, `(x, y)`, `Area`; None for a value."""
    if side.op == "sym":
        return side.args[0]
    if side.op == "app":
        return f"{side.args[0]}()"
    if side.op == "text":
        return " ".join(side.args[0])
    if side.op == "seq":
        names = [name_of(item) for item in side.args[2:]]
        return None if None in names else ",".join(names)
    return _derivative_name(side) or _geometric_name(side)


def _derivative_name(side: Node) -> str | None:
    """`dy/dx`."""
    if side.op != "div" or any(part.op != "mul" for part in side.args):
        return None
    parts = [part.args for part in side.args]
    if any(len(part) != 2 or part[0].args != ("d",) or part[1].op != "sym" for part in parts):
        return None
    return f"d{parts[0][1].args[0]}/d{parts[1][1].args[0]}"


def _geometric_name(side: Node) -> str | None:
    """`AB`, `|AB|`, `AB : CD`, `angle ABC`: capital letters without a number among them."""
    parts = [part for part in walk(side) if part.op not in ("mul", "div", "ratio")]
    if side.op == "call" and side.args[0] == "abs":
        return _geometric_name(side.args[1])
    if not all(part.op == "sym" for part in parts):
        return None
    letters = [part.args[0] for part in parts]
    if letters[0].startswith(("angle", "triangle")) or all(x[0].isupper() for x in letters):
        return f"{side.op} {' '.join(sorted(letters))}" if len(letters) < 9 else None
    return None


def spelled_out(tree: Node) -> list[Node]:
    """The values of a tree with sign choices: `\\pm` and `\\mp` of one expression go together,
    several `\\pm` alone are independent."""
    choices = [n for n in walk(tree) if n.op == "pm"]
    if not choices:
        return [tree]
    if len(choices) > MAX_CHOICES:
        raise Unreadable("too many sign choices")
    if any(n.args[2] < 0 for n in choices):
        return [_signed(tree, itertools.repeat(s)) for s in (1, -1)]
    picks = itertools.product((1, -1), repeat=len(choices))
    return [_signed(tree, iter(pick)) for pick in picks]


def _signed(tree: Node, signs) -> Node:
    if tree.op == "pm":
        left, right, kind = tree.args
        sign = kind * next(signs)
        right = _signed(right, signs)
        right = right if sign > 0 else node("neg", right)
        if left is None:
            return right
        return node("add", _signed(left, signs), right)
    return rebuild(tree, [_signed(child, signs) for child in children(tree)])


def items_of(tree: Node) -> list[Node]:
    """The items of a list or set, sign choices spelled out; a single value is its own list."""
    items = tree.args[1:] if tree.op == "list" else tree.args if tree.op == "set" else [tree]
    found = [value for item in items for value in spelled_out(item)]
    return found[:MAX_ITEMS]


def rows_of(tree: Node) -> list[tuple[Node, ...]] | None:
    """A matrix's rows; a list of lists is a matrix, a flat tuple a column."""
    if tree.op == "matrix":
        return list(tree.args[1])
    if tree.op != "seq":
        return None
    items = tree.args[2:]
    if all(item.op == "seq" for item in items):
        return [item.args[2:] for item in items]
    return [(item,) for item in items]


def entries(tree: Node) -> list[Node] | None:
    """The entries of a column."""
    rows = rows_of(tree)
    if rows is None or any(len(row) != 1 for row in rows):
        return None
    return [row[0] for row in rows]
