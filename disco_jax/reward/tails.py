"""What follows a value: units, percent signs, words such as million, a.m. and p.m."""

from typing import TYPE_CHECKING

from disco_jax.reward import brackets
from disco_jax.reward.tokens import Token
from disco_jax.reward.tree import Node, Unreadable, node, num
from disco_jax.reward.words import (
    COMPOUND,
    CONNECTIVES,
    CURRENCY,
    HEDGES,
    MULTIPLIERS,
    NO_UNIT,
    PERCENT,
    POWERS,
    noun_key,
    unit_key,
)

if TYPE_CHECKING:
    from disco_jax.reward.reader import Reader

MAX_WORDS = 8
UnitKey = tuple[tuple[str, int], ...]


def with_tail(reader: "Reader", value: Node) -> Node:
    """Wraps a value in the percent sign, multiplier and unit that follow it."""
    while not reader.at_end():
        token = reader.peek()
        if token.text == "%" or (token.kind in ("word", "run") and token.text.lower() in PERCENT):
            reader.take()
            value = node("percent", value)
        elif (steps := _base_ahead(reader)) and value.op == "num":
            reader.skip(steps[0])
            value = brackets.in_base(value, steps[1])
        elif token.kind in ("word", "run") and token.text.lower() in MULTIPLIERS:
            reader.take()
            value = _multiplied(value, MULTIPLIERS[token.text.lower()])
        elif (token.kind == "cmd" and "\\" + token.text in CURRENCY) or token.text in CURRENCY:
            reader.take()
            key = CURRENCY.get(token.text) or CURRENCY["\\" + token.text]
            value = node("unit", value, ((key, 1),))
        elif _is_unit_word(reader):
            value = _with_unit(reader, value)
            break
        else:
            break
    return value


def _multiplied(value: Node, factor: int) -> Node:
    if value.op == "unit":
        return node("unit", node("mul", value.args[0], num(factor)), value.args[1])
    return node("mul", value, num(factor))


def _base_ahead(reader: "Reader") -> tuple[int, str] | None:
    """(tokens, base) of `base 2`, `in base two`, `(base 8)`; None where nothing of it is ahead."""
    start = 1 if reader.starts("(") else 0
    steps = start + (reader.ahead(start).text.lower() == "in")
    if reader.ahead(steps).text.lower() != "base":
        return None
    closes = not start or reader.ahead(steps + 2).text == ")"
    return (steps + 2 + start, reader.ahead(steps + 1).text.lower()) if closes else None


def _is_unit_word(reader: "Reader") -> bool:
    from disco_jax.reward import functions

    token = reader.peek()
    if token.kind == "word":
        if token.text == "to" and reader.ahead(1).kind == "num":
            return False  # a ratio: 3 to 4
        return token.text.lower() not in CONNECTIVES and reader.ahead(1).text not in ("=", ":")
    if token.kind == "cmd":
        return functions.is_unit_command(reader)
    return functions.is_unit_run(reader)


def _with_unit(reader: "Reader", value: Node) -> Node:
    key = read_unit(reader)
    reader.was_compound = bool(key) and reader.peek().kind == "num"
    if value.op == "unit":
        if value.args[1] == key:  # $5 dollars
            return value
        if value.args[1] != (("deg", 1),):
            raise Unreadable("two units")
        key = tuple((f"deg{name[:1].upper()}", p) for name, p in key)
        return node("unit", value.args[0], key)
    return node("unit", value, key) if key else value


def read_unit(reader: "Reader") -> UnitKey:
    r"""Consumes `cm^2`, `km/h`, `kcal m^{-2} yr^{-1}`, `square meters per second`, `apples`.

    Raises:
      Unreadable: a word that makes the value conditional or one of several (a hedge).
    """
    parts: list[list] = []
    sign, pending = 1, 1
    while not reader.at_end() and len(parts) < MAX_WORDS:
        token = reader.peek()
        low = token.text.lower()
        if token.kind == "word" and low in HEDGES - {"in"}:
            if low in CONNECTIVES:
                break
            raise Unreadable("hedge")
        if token.kind == "word" and low in CONNECTIVES:
            break
        if token.kind in ("word", "run") and (token.kind == "word" or _joins(token, parts)):
            reader.take()
            if low == "per":
                sign = -1
            elif low in POWERS and low.endswith("ed") and parts:
                parts[-1][1] *= POWERS[low]
            elif low in POWERS:
                pending = POWERS[low]
            elif low not in NO_UNIT:
                parts += _parts(token.text, sign, pending)
                pending = 1
            elif reader.starts("^"):  # units^2
                reader.take()
                reader.exponent()
        elif not parts and token.kind == "cmd":
            parts += _command_parts(reader)
        elif parts and token.text == "^" and token.kind == "op":
            reader.take()
            parts[-1][1] *= _whole(reader.exponent())
        elif parts and token.text in ("/", "cdot", "times", "-", "*") and _unit_ahead(reader):
            reader.take()
            sign = -1 if token.text == "/" else sign
        elif (parts or pending > 1) and token.kind == "op" and token.text == ".":
            reader.take()
        else:
            break
    return tuple(sorted((name, power) for name, power in parts if power))


def _command_parts(reader: "Reader") -> list[list]:
    r"""`\Omega`, `\mu\text{m}`, or a fraction of two units."""
    name = reader.take().text
    if name == "Omega":
        return [["ohm", 1]]
    if name == "mu":
        return [[f"u{unit_key(reader.take().text)}", 1]]
    if not name.endswith("frac"):
        return [[name, 1]]
    parts: list[list] = []
    for sign in (1, -1):
        reader.expect("{", "{")
        parts += [[unit, sign * power] for unit, power in read_unit(reader)]
        reader.expect("}", "}")
    return parts


def _joins(token: Token, parts: list) -> bool:
    known = unit_key(token.text) is not None or token.text in COMPOUND
    return known or (not parts and token.text.lower() in ("am", "pm"))


def _unit_ahead(reader: "Reader") -> bool:
    token = reader.ahead(1)
    return token.kind == "word" or (token.kind == "run" and unit_key(token.text) is not None)


def _parts(word: str, sign: int, power: int) -> list[list]:
    if word in COMPOUND:
        return [[name, sign * exponent] for name, exponent in COMPOUND[word]]
    return [[unit_key(word) or noun_key(word), sign * power]]


def _whole(exponent: Node) -> int:
    sign = 1
    if exponent.op == "neg":
        sign, exponent = -1, exponent.args[0]
    if exponent.op != "num" or exponent.args[0].denominator != 1 or exponent.args[0] > 9:
        raise Unreadable("the exponent of a unit")
    return sign * int(exponent.args[0])


def time_of_day(reader: "Reader", parts: list[Node], tokens: list[Token]) -> Node | None:
    """`3:45`, `3:45 p.m.` as a time; None where the parts are a ratio."""
    half = ""
    last = parts[-1]
    if last.op == "unit" and last.args[1] in ((("am", 1),), (("pm", 1),)):
        half = last.args[1][0][0]
        parts[-1] = last.args[0]
    texts = [token.text for token in tokens]
    if len(parts) != 2 or not all(part.op == "num" for part in parts):
        return None
    if not (
        len(texts[0]) <= 2 and len(texts[1]) == 2 and texts[0].isdigit() and texts[1].isdigit()
    ):
        return None
    hour, minute = int(texts[0]), int(texts[1])
    return node("time", hour, minute, half) if hour <= 24 and minute < 60 else None
