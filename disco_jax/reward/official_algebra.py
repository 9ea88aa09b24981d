"""`simplify(gold - answer) == 0` on the plain expressions of the official policy, without eval.

The published code hands the text to sympy's `parse_expr`. Only texts with at most two different
letters get there, so the grammar is small: numbers, one-letter symbols, `pi`, `sqrt`, `ln`,
`+ - * / ^ ** !` and implied products. It is read here into sympy objects one by one.
"""

import re
import unicodedata

import sympy

MAX_LENGTH = 600
MAX_DIGITS = 1_000
MAX_EXPONENT = 400
MAX_FACTORIAL = 1_000

_REFUSED = re.compile(r"\^\{|\^\(|\^[0-9]+\^|\^[0-9][0-9]+")
_TOKEN = re.compile(
    r"(\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([^\W\d]\w*)|(\*\*|[-+*/()!])"
)
_FUNCTIONS = {"sqrt": sympy.sqrt, "ln": sympy.log}
_CONSTANTS = {"pi": sympy.pi, "oo": sympy.oo}


class _Refused(ValueError):
    """Not an expression of this grammar, or one beyond the bounds."""


def equal(gold: str, answer: str) -> bool:
    """Whether the published code finds the difference to simplify to 0."""
    text = f"({gold})-({answer})"
    letters = {c for c in text.replace("sqrt", "").replace("frac", "") if c.isalpha()}
    if len(letters) > 2 or _REFUSED.search(text) or len(text) > MAX_LENGTH:
        return False
    try:
        difference = _Parser(text.replace("^", "**")).parse()
        return bool(sympy.simplify(difference) == 0)
    except (_Refused, ArithmeticError, TypeError, AttributeError, ValueError, LookupError):
        return False


class _Parser:
    """Python's precedence: sums, products (implied ones too), signs, powers, factorials."""

    def __init__(self, text: str):
        self.tokens: list[tuple[str, str]] = []
        here = 0
        text = "".join(text.split())  # inside brackets a line feed means nothing
        while here < len(text):
            match = _TOKEN.match(text, here)
            if match is None:
                raise _Refused(text[here])
            here = match.end()
            number, name, operator = match.groups()
            if number:
                self.tokens.append(("number", number))
            elif name:
                pieces = _names(name)
                if text[here : here + 1] == "!" and len(pieces) > 1:  # of the whole word
                    pieces = [("op", "("), *pieces, ("op", ")")]
                self.tokens += pieces
            else:
                self.tokens.append(("op", operator))
        self.here = 0
        self.depth = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.here] if self.here < len(self.tokens) else ("end", "")

    def take(self, *operators: str) -> str | None:
        kind, text = self.peek()
        if kind == "op" and text in operators:
            self.here += 1
            return text
        return None

    def parse(self) -> sympy.Expr:
        value = self.sum()
        if self.here != len(self.tokens):
            raise _Refused("stopped early")
        return value

    def sum(self) -> sympy.Expr:
        value = self.product()
        while operator := self.take("+", "-"):
            term = self.product()
            value = value + term if operator == "+" else value - term
        return value

    def product(self) -> sympy.Expr:
        value = self.sign()
        while True:
            if operator := self.take("*", "/"):
                factor = self.sign()
                value = value * factor if operator == "*" else value / factor
            elif self.peek()[0] in ("number", "symbol", "function", "constant") or (
                self.peek() == ("op", "(")
            ):
                value = value * self.power()
            else:
                return value

    def sign(self) -> sympy.Expr:
        self.depth += 1
        if self.depth > 60:
            raise _Refused("too deep")
        if operator := self.take("+", "-"):
            value = self.sign()
            value = value if operator == "+" else -value
        else:
            value = self.power()
        self.depth -= 1
        return value

    def power(self) -> sympy.Expr:
        base = self.factorial()
        if self.take("**"):
            exponent = self.sign()
            if exponent.is_number and not abs(exponent) <= MAX_EXPONENT:
                raise _Refused("exponent")
            base = base**exponent
        return base

    def factorial(self) -> sympy.Expr:
        value = self.atom()
        while self.take("!"):
            if value.is_number and not abs(value) <= MAX_FACTORIAL:
                raise _Refused("factorial")
            value = sympy.factorial2(value) if self.take("!") else sympy.factorial(value)
        return value

    def atom(self) -> sympy.Expr:
        kind, text = self.peek()
        self.here += 1
        if kind == "number":
            return _number(text)
        if kind == "symbol":
            return sympy.Symbol(text)
        if kind == "constant":
            return _CONSTANTS[text]
        if kind == "function":
            if self.peek() != ("op", "("):
                raise _Refused(text)
            return _FUNCTIONS[text](self.atom())
        if (kind, text) == ("op", "("):
            value = self.sum()
            if not self.take(")"):
                raise _Refused("an open bracket")
            return value
        raise _Refused(text)


def _names(name: str) -> list[tuple[str, str]]:
    """A word as sympy's reader splits it: known names whole, others letter by letter. A symbol
    before a bracket is a factor, never a function."""
    if name in _FUNCTIONS:
        return [("function", name)]
    if name in _CONSTANTS:
        return [("constant", name)]
    if len(name) == 1 or "_" in name or _is_greek(name):
        return [("symbol", name)]
    pieces = re.findall(r"\d+|\D", name)
    return [("number" if piece.isdigit() else "symbol", piece) for piece in pieces]


def _is_greek(name: str) -> bool:
    try:
        unicodedata.lookup(f"GREEK SMALL LETTER {name}")
    except KeyError:
        return False
    return True


def _number(text: str) -> sympy.Expr:
    if len(text) > MAX_DIGITS:
        raise _Refused("a number too long")
    text = text.replace("_", "")
    if text.isdigit():
        return sympy.Integer(int(text))
    mantissa, _, exponent = text.partition("e")
    if abs(int(exponent or 0)) > MAX_EXPONENT:
        raise _Refused("an exponent too long")
    return sympy.Float(text)
