"""What stands between brackets: groups, tuples, intervals, sets, bars, matrices, systems."""

from fractions import Fraction
from typing import TYPE_CHECKING

from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, Unreadable, node
from disco_jax.reward.words import BASES

if TYPE_CHECKING:
    from disco_jax.reward.atoms import Atoms

_CLOSERS = frozenset({")", "]", "["})
_ENCLOSED = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil"), "lvert": ("rvert", "abs"),
             "|": ("|", "abs"), "langle": ("rangle", ""), "lbrack": ("rbrack", "")}  # fmt: skip
_MATRICES = {"pmatrix": "p", "bmatrix": "p", "Bmatrix": "p", "matrix": "p", "smallmatrix": "p",
             "array": "p", "vmatrix": "v", "Vmatrix": "v", "psmallmatrix": "p",
             "bsmallmatrix": "p"}  # fmt: skip
_SYSTEMS = frozenset(
    "cases dcases rcases aligned align align* alignedat gathered gather gather* split eqnarray "
    "equation equation* multline".split()
)


def read(atoms: "Atoms") -> Node:
    """`(...)`, `[...]`, `]a,b[` and `|...|`; one value in brackets is that value."""
    opening = atoms.take().text
    if opening == "|":
        atoms.bars += 1
        value = atoms.sum()
        atoms.bars -= 1
        atoms.expect("op", "|")
        return _abs(value)
    bars, atoms.bars = atoms.bars, 0
    in_set, atoms.in_set = atoms.in_set, False
    atoms.enter()
    content = atoms.answer(_CLOSERS - {"["})
    atoms.leave()
    atoms.bars, atoms.in_set = bars, in_set
    closing = atoms.take()
    if closing.kind != "op" or closing.text not in _CLOSERS:
        raise Unreadable("an open bracket")
    left = {"]": "("}.get(opening, opening)
    right = {"[": ")"}.get(closing.text, closing.text)
    if content.op == "list" and content.args[0] == "comma":
        return node("seq", left, right, *content.args[1:])
    if left + right not in ("()", "[]"):
        raise Unreadable("brackets that do not match")
    if left == "[" and content.op == "seq":  # [[1, 2], ...] with one row
        return node("seq", "[", "]", content)
    return content


def _abs(value: Node) -> Node:
    return node("call", "det" if value.op == "matrix" else "abs", value)


def enclosed(atoms: "Atoms", name: str) -> Node:
    r"""`\lfloor \rfloor`, `\lceil \rceil`, `\lvert \rvert`, `\| \|`, `\langle \rangle`."""
    closing, function = _ENCLOSED[name]
    content = atoms.answer(frozenset({closing}))
    atoms.expect("cmd", closing)
    if function == "abs":
        return _abs(content)
    if function:
        return node("call", function, content)
    if content.op != "list":
        return content
    return node("seq", "(", ")", *content.args[1:])


def braces(atoms: "Atoms", _: str) -> Node:
    r"""`\{...\}`: a set, a condition on one (`\{x : x > 2\}`), or a system of equations."""
    if atoms.is_command("begin"):
        return _system(atoms)
    if atoms.is_command("}", "rbrace"):
        atoms.take()
        return node("const", "empty")
    in_set, atoms.in_set = atoms.in_set, True
    atoms.bars += 1
    content = atoms.answer(frozenset({"}", "|", "mid", ":", "rbrace"}))
    if atoms.starts("|") or atoms.starts(":") or atoms.is_command("mid"):
        atoms.take()
        content = atoms.answer(frozenset({"}", "rbrace"}))
        result = content
    elif content.op == "list":
        result = node("set", *content.args[1:])
    else:
        result = node("set", content)
    atoms.bars -= 1
    atoms.in_set = in_set
    if not atoms.is_command("}", "rbrace"):
        raise Unreadable("an open brace")
    atoms.take()
    return result


def environment(atoms: "Atoms", _: str) -> Node:
    r"""`\begin{...} ... \end{...}`: a matrix, a determinant, or a system (a list)."""
    name, rows = _rows(atoms)
    if name in _SYSTEMS:
        return _joined(atoms, name, rows)
    cells = tuple(tuple(_cell(atoms, cell) for cell in row) for row in rows)
    if not cells or len({len(row) for row in cells}) != 1:
        raise Unreadable("a ragged matrix")
    matrix = node("matrix", "p", cells)
    return node("call", "det", matrix) if _MATRICES[name] == "v" else matrix


def _system(atoms: "Atoms") -> Node:
    atoms.take()
    name, rows = _rows(atoms)
    system = _joined(atoms, name, rows)
    if atoms.is_command("}", "rbrace"):
        atoms.take()
    return system


def _joined(atoms: "Atoms", name: str, rows: list[list[list[Token]]]) -> Node:
    """The rows as a list; the columns of `cases` (value, condition) stay apart."""
    if "cases" in name and any(len(row) > 1 for row in rows):
        cells = tuple(tuple(_cell(atoms, cell) for cell in row) for row in rows)
        return node("matrix", "cases", cells)
    items = [_cell(atoms, [token for cell in row for token in cell]) for row in rows]
    return items[0] if len(items) == 1 else node("list", "comma", *items)


def _rows(atoms: "Atoms") -> tuple[str, list[list[list[Token]]]]:
    """After `\\begin`: the environment's name, and its cells as tokens."""
    name = atoms.subscript_key()
    if name not in _MATRICES and name not in _SYSTEMS:
        raise Unreadable(f"environment {name}")
    if name in ("array", "alignedat"):
        atoms.subscript_key()
    rows: list[list[list[Token]]] = [[[]]]
    level = 0
    while not atoms.at_end():
        token = atoms.take()
        if token.kind == "cmd" and token.text in ("begin", "end"):
            if token.text == "end" and level == 0:
                if atoms.subscript_key() != name:
                    raise Unreadable(f"environment {name} closed by another")
                return name, [row for row in rows if any(row)]
            level += 1 if token.text == "begin" else -1
        if level == 0 and token.kind == "cmd" and token.text in ("\\", "cr", "newline"):
            rows.append([[]])
        elif level == 0 and token.kind == "op" and token.text == "&":
            rows[-1].append([])
        elif not (token.kind == "cmd" and token.text == "hline"):
            rows[-1][-1].append(token)
    raise Unreadable(f"environment {name} without its end")


def _cell(atoms: "Atoms", tokens: list[Token]) -> Node:
    while tokens and tokens[-1].kind == "op" and tokens[-1].text in ",;.":
        tokens = tokens[:-1]
    inner = type(atoms)(list(tokens))
    inner.depth = atoms.depth + 4
    tree = inner.answer()
    if not inner.at_end():
        raise Unreadable("a cell")
    return tree


def transpose(value: Node) -> Node:
    """`(1,2,3)^T` is a column; a matrix turns over."""
    if value.op == "seq":
        return node("matrix", "p", tuple((item,) for item in value.args[2:]))
    kind, rows = value.args
    return node("matrix", kind, tuple(zip(*rows, strict=True)))


def in_base(value: Node, key: str) -> Node:
    """`(63)_8`."""
    number = value.args[0]
    base = int(key) if key.isdigit() and len(key) <= 2 else BASES.get(key, 0)
    digits = str(number.numerator)
    if number.denominator != 1 or not 2 <= base <= 36 or any(int(d) >= base for d in digits):
        raise Unreadable("a subscript")
    return node("base", digits, base)


def proper_fraction(atoms: "Atoms") -> Fraction | None:
    r"""Consumes `\frac{3}{8}` of whole numbers with 3 < 8; None (nothing consumed) otherwise."""
    start, digits = atoms.here + 1, []
    place = start
    tokens = atoms.tokens
    while len(digits) < 2 and place < len(tokens):
        token = tokens[place]
        if token.kind == "{":
            if not (place + 2 < len(tokens) and tokens[place + 2].kind == "}"):
                return None
            token, step = tokens[place + 1], 3
        else:
            step = 1
        if token.kind != "num" or not token.text.isdigit() or len(token.text) > 100:
            return None
        if step == 1 and len(token.text) == 2 and not digits:  # \frac38
            digits = [token.text[0], token.text[1]]
        elif step == 1 and len(token.text) > 1:
            return None
        else:
            digits.append(token.text)
        place += step
    if len(digits) != 2 or not 0 < int(digits[0]) < int(digits[1]):
        return None
    atoms.here = place
    return Fraction(int(digits[0]), int(digits[1]))


def slashed_fraction(atoms: "Atoms") -> Fraction | None:
    """Consumes `3/8` after a whole number and a space; None (nothing consumed) otherwise."""
    top, bottom = atoms.peek(), atoms.ahead(2)
    if not (top.text.isdigit() and bottom.kind == "num" and bottom.text.isdigit()):
        return None
    if max(len(top.text), len(bottom.text)) > 100 or not 0 < int(top.text) < int(bottom.text):
        return None
    atoms.skip(3)
    return Fraction(int(top.text), int(bottom.text))
