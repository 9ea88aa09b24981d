r"""Tokens -> tree: a recursive-descent reader for final answers.

    answer    items separated by , ; and or
    item      [label] relation [\pmod m]
    relation  sets joined by = < <= in ...        1 < x <= 4,  x in [2, 7]
    sets      sums joined by \cup \cap \setminus
    sum       terms joined by + - \pm \mp, then a unit or percent sign
    term      factors, joined by * / or by nothing
    factor    an atom with its powers, subscripts, factorials, primes

Atoms are in `atoms`, factors in `factors`, tails (units, percent) in `tails`. Depth and length
are bounded, and so is the time.
"""

from disco_jax.reward import tails
from disco_jax.reward.factors import PART, Factors
from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, Unreadable, node
from disco_jax.reward.words import APPROXIMATE, CONNECTIVES, HEDGES, LABELS, LEAD_INS

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=", "ne": "!=", "neq": "!=", "lt": "<",
    "gt": ">", "in": "in", "equiv": "equiv", "approx": "approx", "simeq": "approx",
    "cong": "equiv", "coloneqq": "=",
}  # fmt: skip
_SETS = {"cup": "union", "bigcup": "union", "cap": "inter", "setminus": "minus",
         "backslash": "minus"}  # fmt: skip
_LABEL_WORDS = 5
_PART_VALUES = frozenset({"-", "frac", "dfrac", "tfrac", "sqrt"})
_SKIPPED = LEAD_INS | APPROXIMATE


def read(tokens: list[Token]) -> Node:
    """The tree of an answer's tokens.

    Raises:
      Unreadable: not an answer of the known forms.
    """
    reader = Reader(list(tokens))
    tree = reader.answer()
    if not reader.at_end():
        raise Unreadable(f"stopped at {reader.peek().text!r}")
    return tree


class Reader(Factors):
    """The levels above an atom."""

    def answer(self, closers: frozenset[str] = frozenset()) -> Node:
        """Items up to the end, or up to one of `closers` (which is left in place)."""
        items = [self.item()]
        kinds = set()
        while not self.at_end() and self.peek().text not in closers:
            kind = self.separator()
            if kind is None:
                break
            kinds.add(kind)
            if self.at_end() or self.peek().text in closers:
                raise Unreadable("a separator at the end")
            items.append(self.item())
        if not kinds:
            return items[0]
        kind = "or" if "or" in kinds else "and" if kinds == {"and"} else "comma"
        return node("list", kind, *items)

    def separator(self) -> str | None:
        """Consumes `,`, `;`, `and`, `or` (also `, and`); None where the next token is neither."""
        kind = None
        if self.peek().kind == "op" and self.peek().text in (",", ";"):
            self.take()
            kind = "comma"
        key = self.peek_key()
        if kind is None and self.starts_part():
            return "comma"
        if not self.at_end() and key in CONNECTIVES:
            self.take()
            kind = CONNECTIVES[key]
        elif kind is None and self.was_compound:
            kind = "and"  # 5 ft 6 in
        self.was_compound = False
        return kind

    def item(self) -> Node:
        self.enter()
        label = self.label()
        tree = self.relation()
        tree = self.modulus(tree)
        self.leave()
        return node("label", label, tree) if label else tree

    def label(self) -> str:
        r"""Consumes `max:`, `(a)`, `the answer is` before a value; the label, or an empty text."""
        start, words = self.here, []
        if letter := self.part_label():
            return letter
        while len(words) < _LABEL_WORDS and self.starts_label_word():
            words.append(self.take().text.lower())
        if not words or self.at_end():
            self.here = start
            return ""
        known = set(words) <= _SKIPPED
        if self.starts(":"):
            self.take()
            return "" if known else " ".join(words)
        if known or (words[-1] in ("is", "are", "equals") and not HEDGES & set(words)):
            if self.starts("="):
                self.take()
            return ""
        if set(words) <= LABELS and self.peek().kind == "num":
            return " ".join(words)
        self.here = start
        return ""

    def part_label(self) -> str:
        """Consumes `(a)`, `(ii)`, `a)` before a value; empty where there is none."""
        letter = self.ahead(1) if self.starts("(") else self.peek()
        steps = 3 if self.starts("(") else 2
        closes = self.ahead(steps - 1).kind == "op" and self.ahead(steps - 1).text == ")"
        inside = self.here > 0 and self.tokens[self.here - 1].text == "("
        if not closes or self.end_ahead(steps) or inside:
            return ""
        after = self.ahead(steps)
        if letter.kind == "run" and not (after.space and PART.fullmatch(letter.text)):
            return ""
        if letter.kind == "run" and after.kind != "num" and after.text not in _PART_VALUES:
            return ""
        if letter.kind not in ("run", "word") or len(letter.text) > 3:
            return ""
        self.skip(steps)
        return letter.text

    def starts_label_word(self) -> bool:
        token = self.peek()
        return token.kind == "word" or (token.kind == "run" and token.text.lower() in _SKIPPED)

    def relation(self) -> Node:
        if self.peek().text in ("approx", "=") and self.peek().kind in ("cmd", "op"):
            self.take()
        sides, operators = [self.ratio()], []
        while (operator := self.relation_operator()) is not None:
            operators.append(operator)
            sides.append(self.ratio())
        return node("rel", tuple(operators), *sides) if operators else sides[0]

    def relation_operator(self) -> str | None:
        token = self.peek()
        if self.at_end() or token.kind not in ("op", "cmd") or token.text not in RELATIONS:
            return None
        self.take()
        operator = RELATIONS[token.text]
        if operator in "<>" and self.peek().text == "=" and self.peek().kind == "op":
            self.take()
            operator += "="
        return operator

    def ratio(self) -> Node:
        """`a:b:c`, `a to b`, a time of day, or just a set expression."""
        first_token = self.peek()
        first = self.sets()
        if first.op == "num" and self.peek() == ("word", "to", 2, None):
            self.take()
            return node("ratio", first, self.number_atom())
        if not (self.starts(":") and not self.in_set):
            return first
        parts, tokens = [first], [first_token]
        while self.starts(":"):
            self.take()
            tokens.append(self.peek())
            parts.append(self.sets())
        time = tails.time_of_day(self, parts, tokens)
        return time or node("ratio", *parts)

    def sets(self) -> Node:
        left = self.sum_with_tail()
        while not self.at_end():
            token = self.peek()
            if token.kind == "cmd" and token.text in _SETS:
                op = _SETS[token.text]
            elif token.text == "U" and token.kind == "run" and left.op in ("seq", "set", "union"):
                op = "union"
            else:
                break
            self.take()
            right = self.sum_with_tail()
            if op == "minus" or left.op != op:
                left = node(op, left, right)
            else:
                left = node(op, *left.args, right)
        return left

    def sum_with_tail(self) -> Node:
        return tails.with_tail(self, self.sum())

    def sum(self) -> Node:
        self.enter()
        terms = []
        sign = self.sign()
        while True:
            term = self.term()
            if sign in ("pm", "mp"):
                left = node("add", *terms) if len(terms) > 1 else terms[0] if terms else None
                terms = [node("pm", left, term, 1 if sign == "pm" else -1)]
            else:
                terms.append(node("neg", term) if sign == "-" else term)
            sign = self.sign()
            if sign is None:
                break
        self.leave()
        return terms[0] if len(terms) == 1 else node("add", *terms)

    def sign(self) -> str | None:
        """Consumes + - \\pm \\mp (several in a row multiply); None where there is none."""
        sign = None
        while self.peek().text in ("+", "-", "pm", "mp") and self.peek().kind in ("op", "cmd"):
            text = self.take().text
            if sign in (None, "+"):
                sign = text
            elif text == "-":
                sign = {"-": "+"}.get(sign, sign)
            elif text != "+":
                raise Unreadable("two signs in a row")
        return sign

    def term(self) -> Node:
        """Products and quotients from the left; juxtaposition is a product."""
        left = self.factor()
        while not self.at_end():
            token = self.peek()
            if token.kind == "op" and token.text == "*" or token.text in ("cdot", "times", "ast"):
                self.take()
                left = node("mul", left, self.signed_factor())
            elif token.kind == "op" and token.text == "/" or token.text == "div":
                self.take()
                left = node("div", left, self.signed_factor())
            elif self.starts_factor():
                left = self.juxtapose(left)
            else:
                break
        return left

    def juxtapose(self, left: Node) -> Node:
        before = self.tokens[self.here - 1].kind
        if self.peek().kind in ("num", "base") and (before in ("num", "base") or left.op == "div"):
            raise Unreadable("a number after a number")
        return node("mul", left, self.factor())

    def signed_factor(self) -> Node:
        sign = self.sign()
        factor = self.factor()
        if sign in ("pm", "mp"):
            raise Unreadable("a sign choice inside a product")
        return node("neg", factor) if sign == "-" else factor

    def modulus(self, tree: Node) -> Node:
        r"""`4 \pmod 9`, `4 \bmod 9`, `4 (mod 9)` after a relation or value."""
        start = self.here
        bracket = self.starts("(")
        if bracket:
            self.take()
        if self.peek_key() not in ("pmod", "bmod", "mod", "pod"):
            self.here = start
            return tree
        self.take()
        modulus = self.factor() if not bracket else self.sum()
        if bracket and not self.starts(")"):
            raise Unreadable("an open bracket")
        if bracket:
            self.take()
        return node("mod", tree, modulus)
