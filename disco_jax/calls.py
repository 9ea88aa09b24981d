"""Call-like strings, the way a config names a structured choice: `dro(tau=10)`, `gap`, `none`.

The text is parsed as a Python expression and only literals are accepted, so a config (or a
command line) cannot run code. A parameter lives inside the call that owns it: choosing another
function drops the parameters of the old one. The functions check their values with `number` and
`choice`, whose failures say what is allowed.
"""

import ast
import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A parsed call: the name before the brackets and the keyword literals inside them."""

    name: str
    kwargs: dict[str, Any]


def parse(text: str) -> Call:
    """`"dro(tau=10)"` -> `Call("dro", {"tau": 10})`; a bare name is a call without arguments.

    Raises:
      ValueError: the text is not one name or one call with literal keyword arguments.
    """
    mend = f"{text!r} is not a name or a call such as 'dro(tau=10)' with keyword literals"
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, AttributeError):
        raise ValueError(mend) from None
    if isinstance(node, ast.Name):
        return Call(node.id, {})
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args):
        raise ValueError(mend)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(mend)
        try:
            kwargs[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise ValueError(
                f"{text!r}: {keyword.arg}={ast.unparse(keyword.value)} is not a literal"
            ) from None
    return Call(node.func.id, kwargs)


def build(text: str, table: Mapping[str, Callable[..., Any]], slot: str) -> Any:
    """Looks the call's name up in `table` and calls it with the call's arguments.

    Args:
      text: a call-like string.
      table: name -> function taking keyword arguments only by name.
      slot: what is being chosen, for the error text (`"surrogate"`).

    Raises:
      ValueError: malformed text, an unknown name, an unknown or a missing parameter; or whatever
        `ValueError` the function raises about its values. The message names the slot, the text
        and what would be accepted.
    """
    name, kwargs = parse(text)
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{slot}={text!r}: no {slot} {name!r}{hint}. One of: {', '.join(table)}")
    function = table[name]
    takes = f"Takes: {describe(name, function)}"
    parameters = inspect.signature(function).parameters
    for unknown in kwargs.keys() - parameters.keys():
        near = difflib.get_close_matches(unknown, parameters, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{slot}={text!r}: no parameter {unknown!r}{hint}. {takes}")
    for missing in parameters.values():
        if missing.default is inspect.Parameter.empty and missing.name not in kwargs:
            raise ValueError(f"{slot}={text!r}: the parameter {missing.name!r} is missing. {takes}")
    try:
        return function(**kwargs)
    except ValueError as error:
        raise ValueError(f"{slot}={text!r}: {error}") from None


def describe(name: str, function: Callable[..., Any]) -> str:
    """The signature as a user would write it: `dro(tau)`."""
    parameters = inspect.signature(function).parameters.values()
    shown = [
        p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default}"
        for p in parameters
    ]
    return f"{name}({', '.join(shown)})" if shown else name


def number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
) -> float:
    """`value` as a float; a ValueError unless finite, > above, >= least and < below."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if real and math.isfinite(value) and value > above and least <= value < below:
        return float(value)
    bounds = {"above": above, "at least": least, "below": below}
    allowed = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
    raise ValueError(f"{name}={value!r} must be a number {' and '.join(allowed)}".rstrip())


def choice(name: str, value: Any, allowed: tuple) -> Any:
    """`value`; a ValueError unless it is one of `allowed`."""
    if any(value is each or (type(value) is type(each) and value == each) for each in allowed):
        return value
    raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
