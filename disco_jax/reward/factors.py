"""Factors: an atom with its powers, subscripts, factorials and primes."""

import re

from disco_jax.reward import brackets, functions
from disco_jax.reward.atoms import ACCENTS, COMMAND_ATOMS, CONSTANTS, FRACTIONS, GREEK, Atoms
from disco_jax.reward.tree import Node, Unreadable, node, sym
from disco_jax.reward.words import HEDGES, unit_key

_AFTER_BRACKET = frozenset({"mod", "bmod", "pmod", "or", "base"})  # no factor begins `(mod 9)`
PART = re.compile(r"[A-Ha-h]|[ivx]{1,3}")  # the names of parts of an answer


class Factors(Atoms):
    """The level above an atom."""

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
            if self.ahead(1).text.lower() in _AFTER_BRACKET or self.starts_part():
                return False
            return token.text == "(" or (token.text == "[" and not self.closes_half_open())
        if token.kind == "cmd" and functions.is_unit_command(self):
            return False
        if token.kind == "cmd":
            return (
                token.text in FRACTIONS
                or token.text in GREEK - {"circ", "star"}
                or token.text in CONSTANTS
                or token.text in functions.FUNCTIONS
                or token.text in ACCENTS
                or token.text in COMMAND_ATOMS
            )
        return False

    def starts_part(self) -> bool:
        r"""Whether `\text{(ii)}` begins another part of the answer here."""
        word = self.ahead(1)
        return (
            self.starts("(")
            and word.kind == "word"
            and PART.fullmatch(word.text) is not None
            and self.ahead(2).text == ")"
            and not self.end_ahead(3)
        )

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
