"""Checks of the parameters inside a call-like string; each failure says what is allowed."""

import math


def number(name, value, *, above=-math.inf, least=-math.inf, below=math.inf):
    """`value` as a float; a ValueError unless finite, > above, >= least and < below."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if real and math.isfinite(value) and value > above and least <= value < below:
        return float(value)
    bounds = {"above": above, "at least": least, "below": below}
    allowed = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
    raise ValueError(f"{name}={value!r} must be a number {' and '.join(allowed)}".rstrip())


def choice(name, value, allowed):
    """`value`; a ValueError unless it is one of `allowed`."""
    if any(value is each or (type(value) is type(each) and value == each) for each in allowed):
        return value
    raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
