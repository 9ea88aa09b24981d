r"""The fast path: answers that are plain numbers are compared exactly, without a reader.

Whole numbers, decimals and fractions of whole numbers cover most golds of the public sets. Both
texts are at most `MAX` characters, so the work is bounded and safe in the calling process.
"""

import re
from fractions import Fraction

MAX = 64
_DECIMAL = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)")
_ARGUMENT = r"\s*(?:\{\s*(\d+)\s*\}|(\d))"
_FRACTION = re.compile(rf"([+-]?)\s*(?:\\[dt]?frac{_ARGUMENT}{_ARGUMENT}|(\d+)/(\d+))")


def number(text: str) -> Fraction | None:
    """The value of a plain number, None for anything else (a zero denominator included)."""
    if len(text) > MAX:
        return None
    text = text.strip().removeprefix("$").removesuffix("$").strip()
    if not text.isascii():
        return None
    if match := _DECIMAL.fullmatch(text):
        sign, digits = match.groups()
        return Fraction(sign + digits.rstrip(".") if digits != "." else "0")
    if match := _FRACTION.fullmatch(text):
        sign, *digits = match.groups()
        top, bottom = (int(part) for part in digits if part)
        if bottom:
            value = Fraction(top, bottom)
            return -value if sign == "-" else value
    return None


def compare(answer: str, gold: str) -> bool | None:
    """Equal or not, where both are plain numbers; None where this path cannot tell."""
    left, right = number(answer), number(gold)
    if left is None or right is None:
        return None
    return left == right
