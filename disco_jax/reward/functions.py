"""Letters and what they mean: symbols, constants, named functions and their arguments."""

from typing import TYPE_CHECKING

from disco_jax.reward.tree import Node, Unreadable, node, num, sym
from disco_jax.reward.words import COMPOUND, HEDGES, MULTIPLIERS, PERCENT, unit_key

if TYPE_CHECKING:
    from disco_jax.reward.atoms import Atoms

_TRIG = "sin cos tan cot sec csc"
_HYPERBOLIC = "sinh cosh tanh coth sech csch"
FUNCTIONS = {
    **{name: name for name in f"{_TRIG} {_HYPERBOLIC}".split()},
    **{f"arc{name}": f"a{name}" for name in f"{_TRIG} {_HYPERBOLIC}".split()},
    **{f"a{name}": f"a{name}" for name in f"{_TRIG} {_HYPERBOLIC}".split()},
    **{f"ar{name}": f"a{name}" for name in _HYPERBOLIC.split()},
    "tg": "tan", "ctg": "cot", "arctg": "atan", "cosec": "csc", "sh": "sinh", "ch": "cosh",
    "ln": "ln", "log": "log", "lg": "log10", "exp": "exp", "sgn": "sgn", "sign": "sgn",
    "gcd": "gcd", "lcm": "lcm", "max": "max", "min": "min", "Re": "re", "Im": "im", "arg": "arg",
    "floor": "floor", "ceil": "ceil", "abs": "abs", "binom": "binom", "sqrt": "sqrt",
    "cbrt": "cbrt", "cis": "cis",
}  # fmt: skip
_NEEDS_BRACKET = frozenset({"floor", "ceil", "abs", "binom", "max", "min", "sign", "arg", "sh",
                            "ch", "Re", "Im", "tg", "sec", "gcd", "lcm", "cbrt"})  # fmt: skip
_NAMES = sorted(FUNCTIONS, key=len, reverse=True)
_INVERSE = {name: f"a{name}" for name in f"{_TRIG} {_HYPERBOLIC}".split()}
_FUNCTION_LETTERS = frozenset("fghFGH")
_LONG_CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "inf": "inf"}


def letter(name: str) -> Node:
    """`e` is Euler's number and `i` the imaginary unit; other letters are symbols."""
    return node("const", name) if name in ("e", "i") else sym(name)


def read_letters(atoms: "Atoms") -> Node:
    """One factor from a run of letters; the rest of the run is put back."""
    token = atoms.take()
    text = token.text
    if text.lower() in HEDGES:
        raise Unreadable("hedge")
    if text.lower() in _LONG_CONSTANTS:
        return node("const", _LONG_CONSTANTS[text.lower()])
    if text in FUNCTIONS and (text not in _NEEDS_BRACKET or atoms.starts("(")):
        return read(atoms, FUNCTIONS[text])
    if token.kind == "word" and not (text.isascii() and text.isupper() and len(text) <= 6):
        return letter(text) if len(text) == 1 else sym(text)
    for name in _NAMES:
        if text.startswith(name) and name not in _NEEDS_BRACKET:
            _put_back(atoms, text[len(name) :])
            return read(atoms, FUNCTIONS[name])
    if text.startswith("pi"):
        _put_back(atoms, text[2:])
        return node("const", "pi")
    _put_back(atoms, text[1:])
    return letter(text[0])


def _put_back(atoms: "Atoms", rest: str) -> None:
    if rest:
        atoms.here -= 1
        atoms.tokens[atoms.here] = atoms.tokens[atoms.here]._replace(kind="run", text=rest, space=0)


def read(atoms: "Atoms", name: str) -> Node:
    r"""A function's subscript, power and argument: `\sin^2 2x`, `\log_2(n+1)`, `\gcd(a,b)`."""
    base = power = None
    if name == "log" and atoms.starts("_"):
        atoms.take()
        base = atoms.argument() if atoms.peek().kind != "num" else num(atoms.take().value)
    if atoms.starts("^"):
        atoms.take()
        power = atoms.exponent()
    if name == "log" and atoms.starts("_"):
        atoms.take()
        base = atoms.argument()
    if power == node("neg", num(1)) and name in _INVERSE:
        name, power = _INVERSE[name], None
    arguments = _arguments(atoms, name)
    if name == "log10":
        name, base = "log", num(10)
    call = node("call", name, *arguments, *([base] if base else []))
    return node("pow", call, power) if power else call


def _arguments(atoms: "Atoms", name: str) -> list[Node]:
    if atoms.starts("(") or atoms.starts("["):
        value = atoms.atom()
        if value.op == "seq":
            return list(value.args[2:])
        return [value]
    if atoms.peek().kind == "{":
        return [atoms.group()]
    if name in ("max", "min", "gcd", "lcm"):
        value = atoms.factor()
        return list(value.args) if value.op == "set" else [value]
    return [_implied(atoms)]


def _implied(atoms: "Atoms") -> Node:
    r"""An argument without brackets: `2\pi t`, up to a sign, a function or an explicit operator;
    `\pi/4` as a whole, since nobody divides a sine of pi by four."""
    sign = atoms.sign()
    value = atoms.factor()
    while atoms.starts_factor() and not (
        atoms.starts("(") or atoms.starts("[") or starts_function(atoms)
    ):
        value = node("mul", value, atoms.factor())
    if atoms.starts("/") and atoms.ahead(1).kind == "num" and _constant(value):
        atoms.take()
        value = node("div", value, atoms.factor())
    return node("neg", value) if sign == "-" else value


def _constant(value: Node) -> bool:
    return value == node("const", "pi") or (
        value.op == "mul" and value.args[0].op == "num" and value.args[1] == node("const", "pi")
    )


def starts_function(atoms: "Atoms") -> bool:
    token = atoms.peek()
    return token.kind in ("cmd", "run", "word") and (
        token.text in FUNCTIONS
        or (token.kind == "run" and any(token.text.startswith(n) for n in _NAMES if len(n) > 2))
    )


def is_application(atoms: "Atoms", name: str) -> bool:
    """Whether a symbol before `(` is applied to what is inside: `f(x+1)`, `x(t)`, `I(0)`."""
    if not atoms.starts("(") or atoms.peek().space == 2:
        return False
    if name.rstrip("'").partition("_")[0] in _FUNCTION_LETTERS or name.endswith("'"):
        return True
    inside, close = atoms.ahead(1), atoms.ahead(2)
    one = inside.kind == "num" or (inside.kind == "run" and len(inside.text) == 1)
    one = one or (inside.kind == "cmd" and inside.text.isalpha())
    return one and close.kind == "op" and close.text == ")"


def application(atoms: "Atoms", name: str) -> Node:
    value = atoms.atom()
    arguments = value.args[2:] if value.op == "seq" else (value,)
    return node("app", name, *arguments)


def combination(atoms: "Atoms", base: Node, key: str) -> Node | None:
    """`C_{12}^{4}` as a binomial coefficient; None (nothing consumed) for anything else."""
    if base != sym("C") or not (key.isdigit() and len(key) < 6 and atoms.starts("^")):
        return None
    braced = atoms.ahead(1).kind == "{"
    top = atoms.ahead(2 if braced else 1)
    if top.kind != "num" or not top.text.isdigit() or not 0 <= top.value <= int(key):
        return None
    if braced and atoms.ahead(3).kind != "}":
        return None
    atoms.skip(4 if braced else 2)
    return node("call", "binom", num(int(key)), num(top.value))


def is_unit_run(atoms: "Atoms") -> bool:
    """Whether letters outside text are a unit: `72 degrees`, `5 mg`, `3 m/s`, not `5m`, `3mg`."""
    token = atoms.peek()
    text = token.text
    if token.kind != "run" or (atoms.here and atoms.tokens[atoms.here - 1].kind == "op"):
        before = atoms.tokens[atoms.here - 1].text if atoms.here else ""
        if token.kind != "run" or before not in (")", "]", "%", "!"):
            return False
    if text.lower() in (*MULTIPLIERS, *PERCENT) or (len(text) > 3 and unit_key(text)):
        return True
    known = text in COMPOUND or unit_key(text) is not None
    if text in ("am", "pm", "AM", "PM"):
        return True
    after_number = atoms.here > 0 and atoms.tokens[atoms.here - 1].kind in ("num", "}")
    if not (known and token.space and after_number):
        return False
    quotient = atoms.ahead(1).text == "/" and unit_key(atoms.ahead(2).text) is not None
    return quotient or (len(text) > 1 and not _followed(atoms))


def is_unit_command(atoms: "Atoms") -> bool:
    r"""Whether a command after a number is a unit: `\Omega`, `\mu\text{m}`, a fraction of words."""
    name, after = atoms.peek().text, atoms.ahead(1)
    if atoms.here == 0 or atoms.tokens[atoms.here - 1].kind not in ("num", "}"):
        return False
    if name in ("Omega", "AA"):
        return atoms.peek().space > 0 and (after.kind == "end" or after.text in (",", ")"))
    if name == "mu":
        return after.kind == "word" and unit_key(after.text) is not None
    return name.endswith("frac") and after.kind == "{" and atoms.ahead(2).kind == "word"


def _followed(atoms: "Atoms") -> bool:
    """Whether more mathematics follows the next token."""
    after = atoms.ahead(1)
    return after.kind in ("run", "num", "{", "base") or (
        after.kind == "op" and after.text in "(+-="
    )


def big_operator(atoms: "Atoms", name: str) -> Node:
    r"""`\sum_{k=1}^{n} body` and `\prod`."""
    if not atoms.starts("_"):
        raise Unreadable(f"\\{name} without bounds")
    atoms.take()
    start = atoms.argument()
    if not (start.op == "rel" and start.args[0] == ("=",) and start.args[1].op == "sym"):
        raise Unreadable(f"\\{name} over a condition")
    if not atoms.starts("^"):
        raise Unreadable(f"\\{name} without an upper bound")
    atoms.take()
    upper = atoms.exponent()
    return node("sum", name, start.args[1].args[0], start.args[2], upper, atoms.term())


def determinant(atoms: "Atoms", _: str) -> Node:
    value = atoms.factor()
    return node("call", "det", value)
