"""Answers in words: names, phrases, dates."""

import itertools

from disco_jax.reward.functions import FUNCTIONS
from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, node
from disco_jax.reward.words import ARTICLES, LEAD_INS, MONTHS, PHRASES, SHORT_WORDS

MAX_WORDS = 40
_PUNCTUATION = frozenset(".,'-:!?\"()")


def read(tokens: list[Token]) -> Node | None:
    """The answer as words (or what a phrase stands for); None where it is mathematics."""
    if not tokens or not _wordy(tokens):
        return None
    if letters := _letters(tokens):
        return node("list", "and", *(node("sym", letter) for letter in letters))
    parts = _parts(tokens)
    if len(parts) > 1 and all(parts) and "or" not in {t.text.lower() for t in tokens}:
        return node("list", "and", *(node("text", tuple(words_of(part))) for part in parts))
    words = words_of(tokens)
    if not words or len(words) > MAX_WORDS:
        return None
    for drop in range(2):  # "there is no such n"
        phrase = " ".join(words[: len(words) - drop] if drop else words)
        if (not drop or len(words[-1]) == 1) and phrase in PHRASES:
            key = PHRASES[phrase]
            return node("text", (key,)) if key in ("dne", "infinite") else node("const", key)
    if any(word in MONTHS for word in words):
        words = sorted(str(MONTHS.get(word, word)) for word in words)
    return node("text", tuple(words))


def _letters(tokens: list[Token]) -> list[str]:
    """The letters of `A and C`, `both (A) and (C)`; empty where there is anything else."""
    texts = [t.text for t in tokens if t.kind in ("word", "run")]
    letters = [text for text in texts if len(text) == 1 and text.isupper()]
    rest = {text.lower() for text in texts if text not in letters}
    return letters if len(letters) > 1 and "and" in rest and rest <= {"and", "both"} else []


def _parts(tokens: list[Token]) -> list[list[Token]]:
    """What commas and `and` separate; a date is one part."""
    parts: list[list[Token]] = [[]]
    if any(token.kind == "num" for token in tokens):
        return [tokens]
    for token in tokens:
        if token.text.lower() == "and" or token.text == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def words_of(tokens: list[Token]) -> list[str]:
    """Words and numbers in lower case, without articles, a lead-in and punctuation."""
    words = [t.text.lower().replace("'", "") for t in tokens if t.kind in ("word", "run", "num")]
    while len(words) > 1 and words[0] in LEAD_INS - {"no"}:
        words = words[1:]
    kept = [word for word in words if word not in ARTICLES]
    return kept or words


def _wordy(tokens: list[Token]) -> bool:
    """Only words and punctuation, one of them a word for certain; or a date."""
    kinds = {token.kind for token in tokens}
    if any(a.text in FUNCTIONS and b.text == "(" for a, b in itertools.pairwise(tokens)):
        return False
    if not all(
        token.kind in ("word", "run", "num") or (token.kind == "op" and token.text in _PUNCTUATION)
        for token in tokens
    ):
        return False
    if "num" in kinds:
        return any(token.text.lower() in MONTHS for token in tokens)
    return any(_is_word(token) for token in tokens)


def _is_word(token: Token) -> bool:
    text = token.text
    if token.kind == "word":
        return len(text) > 1 or not text.isascii()
    if token.kind != "run":
        return False
    capitalised = len(text) > 2 and text[0].isupper() and text[1:].islower()
    initials = len(text) > 2 and text.isupper()
    return len(text) > 4 or capitalised or initials or text.lower() in SHORT_WORDS
