"""A cursor over tokens, with a bound on how deep the reading may nest."""

from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Unreadable

MAX_DEPTH = 80

_END = Token("end", "", 2)


class Cursor:
    """Where the reader stands. Reading past the end gives a token of kind `end`."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.here = 0
        self.depth = 0
        self.bars = 0  # open | ... |
        self.in_set = False
        self.was_compound = False

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
