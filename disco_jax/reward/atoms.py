"""The atoms of the reader: numbers, symbols, fractions, roots, functions, brackets, matrices."""

from disco_jax.reward import brackets, functions
from disco_jax.reward.cursor import Cursor
from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, Unreadable, node, num, sym
from disco_jax.reward.words import CURRENCY

GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "omicron rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta "
    "Lambda Xi Pi Sigma Upsilon Phi Psi Omega hbar ell ldots dots cdots vdots imath jmath nabla "
    "partial star dagger aleph triangle square circ".split()
)
CONSTANTS = {"pi": "pi", "infty": "inf", "emptyset": "empty", "varnothing": "empty",
             "R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals",
             "C": "complexes", "Reals": "reals", "reals": "reals"}  # fmt: skip
ACCENTS = frozenset(
    "overline bar hat widehat tilde widetilde vec overrightarrow dot ddot angle measuredangle "
    "mathcal mathscr mathfrak cancel overbrace underbrace".split()
)
FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"})


class Atoms(Cursor):
    """Everything up to an atom; the levels above are in `factors` and `reader`."""

    def argument(self) -> Node:
        """What a command takes: a braced group, or the next digit, letter or command."""
        token = self.peek()
        if token.kind == "{":
            return self.group()
        if token.kind == "num" and token.text.isdigit():
            self.tokens[self.here] = token._replace(text=token.text[1:], space=0)
            if len(token.text) == 1:
                self.take()
            else:
                rest = token.text[1:]
                self.tokens[self.here] = Token("num", rest, 0, num(int(rest)).args[0])
            return num(int(token.text[0]))
        if token.kind == "run":
            if len(token.text) == 1:
                self.take()
            else:
                self.tokens[self.here] = Token("run", token.text[1:], 0)
            return functions.letter(token.text[0])
        if token.kind in ("cmd", "word"):
            return self.atom()
        raise Unreadable(f"{token.text!r} in place of an argument")

    def group(self) -> Node:
        """A braced group as one value."""
        self.expect("{", "{")
        if self.peek().kind == "}":
            raise Unreadable("an empty group")
        self.enter()
        tree = self.choose() or self.answer(frozenset("}"))
        self.leave()
        self.expect("}", "}")
        return tree

    def choose(self) -> Node | None:
        r"""`n \choose k`, the inside of a group; None (nothing consumed) where it is not."""
        start, level = self.here, 0
        for place in range(start, len(self.tokens)):
            token = self.tokens[place]
            level += (token.kind == "{") - (token.kind == "}")
            if level < 0:
                break
            if level == 0 and token.kind == "cmd" and token.text in ("choose", "over"):
                top = self.sum()
                self.expect("cmd", token.text)
                if token.text == "over":
                    return node("div", top, self.sum())
                return node("call", "binom", top, self.sum())
        return None

    def subscript_key(self) -> str:
        """A subscript as text, its spaces and wrappers gone."""
        token = self.take()
        if token.kind == "run" and len(token.text) > 1:
            self.here -= 1
            self.tokens[self.here] = Token("run", token.text[1:], 0)
            return token.text[0]
        if token.kind != "{":
            return token.text
        parts, level = [], 1
        while not self.at_end():
            token = self.take()
            level += (token.kind == "{") - (token.kind == "}")
            if level == 0:
                return "".join(parts)
            parts.append(token.text)
        raise Unreadable("an open brace")

    def atom(self) -> Node:
        token = self.peek()
        if token.kind == "num":
            return self.number_atom()
        if token.kind == "base":
            digits, base = self.take().text.split()
            return node("base", digits.lstrip("0").upper() or "0", int(base))
        if token.kind == "{":
            return self.group()
        if token.kind in ("run", "word"):
            return functions.read_letters(self)
        if token.kind == "op" and (token.text in "([|" or token.text == "]"):
            return brackets.read(self)
        if token.text in CURRENCY or (token.kind == "cmd" and "\\" + token.text in CURRENCY):
            return self.currency()
        if token.kind == "cmd":
            return self.command_atom()
        raise Unreadable(f"{token.text or 'the end'!r} in place of a value")

    def currency(self) -> Node:
        token = self.take()
        key = CURRENCY.get(token.text) or CURRENCY["\\" + token.text]
        sign = self.sign()
        value = self.factor()
        return node("unit", node("neg", value) if sign == "-" else value, ((key, 1),))

    def number_atom(self) -> Node:
        """A number; `2\\frac{3}{8}` and `2 3/8` are mixed numbers, not products."""
        token = self.take()
        value = num(token.value)
        if not token.text.isdigit():
            return value
        if self.is_command(*FRACTIONS):
            part = brackets.proper_fraction(self)
        elif self.peek().kind == "num" and self.peek().space and self.ahead(1).text == "/":
            part = brackets.slashed_fraction(self)
        else:
            part = None
        return value if part is None else node("num", value.args[0] + part)

    def command_atom(self) -> Node:
        token = self.take()
        name = token.text
        if name in FRACTIONS:
            top = self.argument()
            return node("div", top, self.argument())
        if name in COMMAND_ATOMS:
            return COMMAND_ATOMS[name](self, name)
        if name in CONSTANTS and name not in ("R", "Z", "N", "Q", "C"):
            return node("const", CONSTANTS[name])
        if name in ("max", "min") and self.starts("="):
            return sym(name)
        if name in functions.FUNCTIONS:
            return functions.read(self, functions.FUNCTIONS[name])
        if name in GREEK:
            return sym(name)
        if name in ACCENTS:
            return sym(f"{name} {self.accented()}")
        raise Unreadable(f"command \\{name}")

    def accented(self) -> str:
        if self.peek().kind == "{":
            return self.subscript_key()
        parts = []
        while self.peek().kind == "run" or (parts and self.starts("_")):
            if self.starts("_"):
                self.take()
                parts.append("_" + self.subscript_key())
            else:
                parts.append(self.take().text)
        if parts:
            return "".join(parts)
        return self.take().text

    def sqrt(self, _: str) -> Node:
        degree = None
        if self.starts("["):
            self.take()
            degree = self.sum()
            self.expect("op", "]")
        if self.starts("("):
            radicand = self.atom()
        elif self.peek().kind == "num":
            token = self.take()
            radicand = num(token.value)
        else:
            radicand = self.argument()
        return (
            node("call", "sqrt", radicand)
            if degree is None
            else node("call", "root", radicand, degree)
        )

    def binom(self, _: str) -> Node:
        top = self.argument()
        return node("call", "binom", top, self.argument())

    def blackboard(self, _: str) -> Node:
        key = self.subscript_key()
        if key not in CONSTANTS:
            return sym(f"mathbb {key}")
        return node("const", CONSTANTS[key])


COMMAND_ATOMS = {
    "sqrt": Atoms.sqrt,
    "binom": Atoms.binom,
    "dbinom": Atoms.binom,
    "tbinom": Atoms.binom,
    "mathbb": Atoms.blackboard,
    "mathds": Atoms.blackboard,
    "lfloor": brackets.enclosed,
    "lceil": brackets.enclosed,
    "lvert": brackets.enclosed,
    "|": brackets.enclosed,
    "langle": brackets.enclosed,
    "lbrack": brackets.enclosed,
    "{": brackets.braces,
    "lbrace": brackets.braces,
    "begin": brackets.environment,
    "sum": functions.big_operator,
    "prod": functions.big_operator,
    "det": functions.determinant,
}
