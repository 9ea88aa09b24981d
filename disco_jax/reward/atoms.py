"""The atoms of the reader: numbers, symbols, fractions, roots, functions, brackets, matrices."""

from disco_jax.reward import brackets, functions
from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, Unreadable, node, num, sym
from disco_jax.reward.words import CURRENCY, HEDGES, unit_key

MAX_DEPTH = 80

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
_OPENING = frozenset({"(", "[", "{", "|", "\\{"})
_END = Token("end", "", 2)


class Atoms:
    """A cursor over tokens with everything up to `factor`. `Reader` adds the levels above."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.here = 0
        self.depth = 0
        self.bars = 0  # open | ... |
        self.in_set = False
        self.was_compound = False

    # The cursor.

    def peek(self) -> Token:
        return self.tokens[self.here] if self.here < len(self.tokens) else _END

    def ahead(self, steps: int) -> Token:
        place = self.here + steps
        return self.tokens[place] if place < len(self.tokens) else _END

    def end_ahead(self, steps: int) -> bool:
        return self.here + steps >= len(self.tokens)

    def at_end(self) -> bool:
        return self.here >= len(self.tokens)

    def take(self) -> Token:
        token = self.peek()
        self.here += 1
        return token

    def skip(self, steps: int) -> None:
        self.here += steps

    def starts(self, character: str) -> bool:
        token = self.peek()
        return token.kind == "op" and token.text == character

    def is_command(self, *names: str) -> bool:
        token = self.peek()
        return token.kind == "cmd" and token.text in names

    def peek_key(self) -> str:
        r"""The next token as the word tables spell it: `or`, `\lor`, `mod`."""
        token = self.peek()
        if token.kind == "cmd" and token.text in ("land", "lor", "wedge", "vee"):
            return "\\" + token.text
        return token.text.lower() if token.kind in ("word", "run") else token.text

    def expect(self, kind: str, text: str) -> None:
        token = self.take()
        if token.kind != kind or token.text != text:
            raise Unreadable(f"{token.text!r} in place of {text!r}")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too deep")

    def leave(self) -> None:
        self.depth -= 1

    # Factors.

    def starts_factor(self) -> bool:
        """Whether a factor can begin here without a sign of multiplication."""
        token = self.peek()
        if token.kind in ("num", "base", "{"):
            return True
        if token.kind == "run":
            return (
                token.text.lower() not in HEDGES
                and token.text != "U"
                and (not functions.is_unit_run(self))
                and token.text.lower() not in ("and", "mod", "percent")
            )
        if token.kind == "word":
            return token.text in functions.FUNCTIONS or (
                len(token.text) == 1 and token.text.isascii() and unit_key(token.text) is None
            )
        if token.kind == "op":
            if token.text == "|":
                return self.bars == 0
            if token.text == "(" and self.ahead(1).text.lower() in ("mod", "bmod", "pmod", "or"):
                return False
            return token.text == "(" or (token.text == "[" and not self.closes_half_open())
        if token.kind == "cmd":
            return (
                token.text in FRACTIONS
                or token.text in GREEK - {"circ", "star"}
                or token.text in CONSTANTS
                or token.text in functions.FUNCTIONS
                or token.text in ACCENTS
                or token.text in _COMMAND_ATOMS
            )
        return False

    def closes_half_open(self) -> bool:
        """Whether the `[` here ends an interval in the style of `[0, 1[`."""
        after = self.ahead(1)
        return after.kind == "end" or after.text in ("cup", "cap", "setminus", ")", "]", ",", "}")

    def factor(self) -> Node:
        """An atom and what is attached to it."""
        self.enter()
        token = self.peek()
        base = self.atom()
        if token.kind == "num" and self.starts("_"):
            raise Unreadable("a subscript on a number")
        while not self.at_end():
            if self.starts("^"):
                base = self.power(base)
            elif self.starts("!"):
                self.take()
                double = self.starts("!")
                if double:
                    self.take()
                if self.starts("!"):
                    raise Unreadable("more than two factorial signs")
                base = node("call", "factorial2" if double else "factorial", base)
            elif self.starts("'"):
                base = self.primed(base)
            elif self.starts("_"):
                base = self.subscripted(base)
            elif base.op == "sym" and functions.is_application(self, base.args[0]):
                base = functions.application(self, base.args[0])
            elif self.is_command("degree"):
                self.take()
                base = node("unit", base, (("deg", 1),))
            else:
                break
        self.leave()
        return base

    def power(self, base: Node) -> Node:
        self.expect("op", "^")
        exponent = self.superscript()
        if exponent == "deg":
            scale = self.peek().text if self.peek().kind in ("run", "word") else ""
            if scale in ("C", "F"):
                self.take()
            return node("unit", base, ((f"deg{scale if scale in ('C', 'F') else ''}", 1),))
        if isinstance(exponent, str):  # primes
            return self.prime(base, len(exponent))
        if exponent == sym("T") and base.op in ("seq", "matrix"):
            return brackets.transpose(base)
        return node("pow", base, exponent)

    def superscript(self) -> Node | str:
        r"""The exponent after `^`; "deg" for a degree sign, primes as text."""
        start = self.here
        braced = self.peek().kind == "{"
        if braced:
            self.take()
        token = self.peek()
        if self.is_command("circ", "degree") or (
            braced and token.kind == "word" and token.text in ("o", "circ")
        ):
            self.take()
            if braced:
                self.expect("}", "}")
            return "deg"
        primes = ""
        while self.is_command("prime") or (braced and self.starts("'")):
            self.take()
            primes += "'"
        if primes:
            if braced:
                self.expect("}", "}")
            return primes
        self.here = start
        return self.exponent()

    def exponent(self) -> Node:
        """A group, or a signed number, or one token; `2^3^4` groups from the right."""
        if self.peek().text in "+-" and self.peek().kind == "op":
            negative = self.take().text == "-"
            value = self.exponent()
            return node("neg", value) if negative else value
        if self.peek().kind == "num":
            value = self.number_atom()
        elif self.starts("("):
            value = self.atom()
        else:
            value = self.argument()
        if self.starts("^"):
            self.enter()
            value = self.power(value)
            self.leave()
        return value

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

    def primed(self, base: Node) -> Node:
        count = 0
        while self.starts("'"):
            self.take()
            count += 1
        return self.prime(base, count)

    def prime(self, base: Node, count: int) -> Node:
        """A derivative's mark on a symbol; minutes or seconds of arc on a number."""
        if base.op == "sym":
            return sym(base.args[0] + "'" * count)
        if base.op == "num":
            return node("unit", base, (("arcmin" if count == 1 else "arcsec", 1),))
        raise Unreadable("a prime")

    def subscripted(self, base: Node) -> Node:
        self.expect("op", "_")
        key = self.subscript_key()
        if base.op == "sym":
            return functions.combination(self, base, key) or sym(f"{base.args[0]}_{key}")
        if base.op == "const" and base.args[0] in ("e", "i"):
            return sym(f"{base.args[0]}_{key}")
        if base.op == "const" and base.args[0] in ("reals", "integers", "naturals", "rationals"):
            return sym(f"{base.args[0]}_{key}")
        if base.op == "num":  # (63)_8: a bare number does not come here
            return brackets.in_base(base, key)
        raise Unreadable("a subscript")

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

    # Atoms.

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
        if name in _COMMAND_ATOMS:
            return _COMMAND_ATOMS[name](self, name)
        if name in CONSTANTS and name not in ("R", "Z", "N", "Q", "C"):
            return node("const", CONSTANTS[name])
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


_COMMAND_ATOMS = {
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
