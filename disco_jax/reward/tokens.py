r"""Cleaned LaTeX or plain text -> tokens, in one linear pass.

Letters in mathematics come as `run`s (`2RC` holds the run `RC`; the reader decides whether it is
a product, a function name or a word), letters inside `\text{...}` as `word`s.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from disco_jax.reward.tree import Unreadable
from disco_jax.reward.words import BASES

MAX_TOKENS = 3_000
MAX_DIGITS = 4_000  # of one number
MAX_EXPONENT = 4_000  # of e-notation; with MAX_DIGITS below the limit of str(int)

TEXT_COMMANDS = frozenset(
    "text textrm textnormal textsf texttt textup mbox hbox mathrm mathsf mathtt operatorname "
    "operatorname* rm textmd".split()
)
# Wrappers whose content is as it would be without them.
TRANSPARENT = frozenset(
    "mathbf boldsymbol bm pmb mathit mathnormal underline emph textit textbf textsl textsc uline "
    "smash ensuremath mathop mathord mathclose mathopen fbox boxed mathstrut".split()
)
SPACES = frozenset({",", ";", ":", ">", "!", " ", "\n", "quad", "qquad", "enspace", "thinspace"})


class Token(NamedTuple):
    """One token.

    `kind`: num, base, run, word, cmd (its name without the backslash), op (one character), `{`
    or `}`. `space`: 0 glued to the token before, 1 after a thin space, 2 after a space. `value`:
    the number of a `num`.
    """

    kind: str
    text: str
    space: int = 0
    value: Fraction | None = None


_REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{?(\d+)\}?|((?:\\dot\s*\{?\d\}?\d*)+)|\((\d+)\))"
)
_BASE = re.compile(
    r"([0-9A-F]*[0-9][0-9A-F]*)\s*_\s*(?:\{\s*(\d{1,2})\s*\}|(\d{1,2})|"
    r"\{?\s*\\text(?:rm)?\s*\{\s*([a-z]+)\s*\}\s*\}?)(?![0-9A-Za-z])"
)
_NUMBER = re.compile(r"(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+(?![\d.]*[A-Za-z^]))?")
_THOUSANDS = re.compile(r"\d{1,3}(?:(?:,\\!\s*|\{,\}\s*|\\[,;: ]\s*|\\!\s*)\d{3})+(?!\d)")
_SPACED = re.compile(r"[1-9]\d{0,2}(?: \d{3})+(?![\d/]| \d)")
_COMMAS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|[^A-Za-z])", re.DOTALL)
_LETTERS = re.compile(r"[A-Za-z]+")
_WORD = re.compile(r"(?:[^\W\d_]|(?<=[^\W\d_])'(?=s\b))+")
_OPERATORS = frozenset("+-*/^_=<>!()[]|,;:'&%.~?\"@#$€£¥₹₩¢")


def tokenise(text: str, *, thousands: bool) -> list[Token]:
    """Tokens of a cleaned text.

    Args:
      text: from `normalise.clean`.
      thousands: whether `1,234` outside brackets is one number (else a list of two).

    Raises:
      Unreadable: a character or command that no answer needs, or too many tokens.
    """
    scanner = _Scanner(text, thousands)
    scanner.scan(0, len(text), in_text=False)
    return scanner.tokens


class _Scanner:
    def __init__(self, text: str, thousands: bool):
        self.text = text
        self.thousands = thousands
        self.tokens: list[Token] = []
        self.space = 0
        self.depth = 0  # of brackets, for the reading of commas

    def put(self, kind: str, text: str, value: Fraction | None = None) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise Unreadable("too many tokens")
        last = self.tokens[-1] if self.tokens else None
        if kind == "num" and not self.space and last and last.kind == "num":  # \\mathbf{2}9
            kind, text = self.tokens.pop().kind, last.text + text
            value = _fraction(text) if text.isdigit() else None
            if value is None:
                raise Unreadable("a number after a number")
        self.tokens.append(Token(kind, text, self.space, value))
        self.space = 0

    def scan(self, start: int, end: int, in_text: bool) -> None:
        """Tokens of `text[start:end]`."""
        text, here = self.text, start
        while here < end:
            c = text[here]
            if c.isspace() or c == "~":
                self.space = 2
                here += 1
            elif c.isdigit() or (c == "." and text[here + 1 : here + 2].isdigit()):
                here = self.number(here, end)
            elif c == "\\":
                here = self.command(here, end, in_text)
            elif c in "{}":
                self.put(c, c)
                here += 1
            elif in_text or not c.isascii():
                here = self.words(here, end)
            elif c.isalpha():
                match = _BASE.match(text, here, end)
                here = self.based(match) if match and _fits(match) else self.letters(here, end)
            elif c in _OPERATORS:
                self.operator(c)
                here += 1
            else:
                raise Unreadable(f"character {c!r}")

    def operator(self, c: str) -> None:
        self.depth += (c in "([") - (c in ")]")
        self.put("op", c)

    def letters(self, here: int, end: int) -> int:
        match = _LETTERS.match(self.text, here, end)
        self.put("run", match.group())
        return match.end()

    def words(self, here: int, end: int) -> int:
        match = _WORD.match(self.text, here, end)
        if match:
            self.put("word", match.group())
            return match.end()
        if self.text[here] not in _OPERATORS:
            raise Unreadable(f"character {self.text[here]!r}")
        self.operator(self.text[here])
        return here + 1

    def number(self, here: int, end: int) -> int:
        """A number: in another base, repeating, with separators, in e-notation, or plain."""
        if (match := _BASE.match(self.text, here, end)) and _fits(match):
            return self.based(match)
        if match := _REPEATING.match(self.text, here, end):
            self.put("num", match.group(), _repeating(match))
            return match.end()
        commas = _COMMAS if self.thousands and self.depth == 0 else None
        for pattern in (_THOUSANDS, commas, _SPACED):
            match = pattern and pattern.match(self.text, here, end)
            if match:
                digits = re.sub(r"\D", "", match.group())
                tail = re.compile(r"\.\d+").match(self.text, match.end(), end)
                stop = tail.end() if tail else match.end()
                self.put("num", match.group(), _fraction(digits + (tail.group() if tail else "")))
                return stop
        match = _NUMBER.match(self.text, here, end)
        self.put("num", match.group(), _fraction(match.group()))
        return match.end()

    def based(self, match: re.Match) -> int:
        base = _base_of(match)
        self.put("base", f"{match.group(1)} {base}")
        return match.end()

    def command(self, here: int, end: int, in_text: bool) -> int:
        match = _COMMAND.match(self.text, here, end)
        if match is None:
            raise Unreadable("a lone backslash")
        name = match.group(1)
        here = match.end()
        if name in SPACES:
            self.space = max(self.space, 1 if name in ",!" else 2)
            return here
        if name not in TEXT_COMMANDS and name not in TRANSPARENT:
            self.depth += (name == "{") - (name == "}")
            in_plain = in_text and name in "%&#_"
            self.put("op" if in_plain else "cmd", name)
            return here
        inner = in_text or name in TEXT_COMMANDS or name.startswith("text")
        while here < end and self.text[here].isspace():
            here += 1
        if not self.text.startswith("{", here):
            return here  # the wrapper of a single token: nothing to unwrap
        close = _close(self.text, here, end)
        space = self.space
        self.scan(here + 1, close, inner)
        self.space = self.space or (2 if space == 2 and close == here + 1 else 0)
        return close + 1


def _close(text: str, start: int, end: int) -> int:
    depth, here = 0, start
    while here < end:
        c = text[here]
        if c == "\\":
            here += 1
        elif c in "{}":
            depth += 1 if c == "{" else -1
            if depth == 0:
                return here
        here += 1
    raise Unreadable("an open brace")


def _fraction(text: str) -> Fraction:
    """The exact value of a decimal, its digits and exponent bounded."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 6 or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise Unreadable("a number too long")
    whole, _, part = mantissa.partition(".")
    value = Fraction(int(whole + part or "0"), 10 ** len(part))
    return value * Fraction(10) ** int(exponent or 0)


def _repeating(match: re.Match) -> Fraction:
    whole, fixed, bar, dots, brackets = match.groups()
    if dots:
        digits = re.sub(r"\D", " ", dots).split()
        cycle = "".join(digits)
    else:
        cycle = bar or brackets
    if len(whole + fixed + cycle) > 100:
        raise Unreadable("a number too long")
    head = Fraction(int(whole + fixed or "0"), 10 ** len(fixed))
    return head + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))


def _base_of(match: re.Match) -> int:
    _, braced, bare, name = match.groups()
    return BASES.get(name, 0) if name else int(braced or bare)


def _fits(match: re.Match) -> bool:
    base = _base_of(match)
    return 2 <= base <= 36 and all(int(digit, 36) < base for digit in match.group(1))
