"""Whether an answer and a gold say the same mathematics."""

from disco_jax.reward import plain
from disco_jax.reward.verdict import Outcome


def best(text: str, golds: tuple[str, ...]) -> Outcome:
    """1 where any gold agrees."""
    for gold in golds:
        if gold.strip() and "".join(gold.split()) == "".join(text.split()):
            return Outcome(1, "string")
    return Outcome(0, "unequal")


def real_value(text: str):
    """The real value of a text, None where it has none."""
    return plain.number(text)
