"""What a grader says about one response."""

from typing import NamedTuple


class Outcome(NamedTuple):
    """A policy's judgement: `reward` is 1 or 0, `reason` one word or a short phrase of why.

    Reasons of reward 1: `string` (same text after normalising), `number` (same exact number),
    `equal` (the mathematics agrees), `choice`, `rounded` (more digits of a measured gold),
    `function`.
    Reasons of reward 0: `no_think_close`, `no_box`, `unterminated_box`, `empty_answer`,
    `too_long`, `no_gold`, `unequal`, `unreadable: ...` (and the texts differ), and from the pool
    `timeout`, `memory`, `crash`.
    """

    reward: int
    reason: str


class Verdict(NamedTuple):
    """An `Outcome` with the wall time it took, in milliseconds (0 where it was remembered;
    the start of a worker is left out)."""

    reward: int
    reason: str
    ms: float
