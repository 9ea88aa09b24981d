"""The guard at the door of training: are the golds gradable, does anything score at all?"""

import collections
import random
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from disco_jax.reward import policies
from disco_jax.reward.pool import Grader
from disco_jax.reward.verdict import Verdict

_SHARED: dict[str, Grader] = {}
_LOCK = threading.Lock()


class Ungradable(NamedTuple):
    """A gold that does not match itself: where it stands, what it says, and why."""

    index: int
    gold: str
    reason: str


def grade(response: str, golds: Any, policy: str = policies.DEFAULT) -> Verdict:
    """Grades one response; the worker it may need is started once and kept.

    Args:
      response: what the model wrote, without the prompt.
      golds: one acceptable answer or several; strings, numbers or an array.
      policy: a call-like string, see `policies`.
    """
    with _LOCK:
        if policy not in _SHARED:
            _SHARED[policy] = Grader(policy, workers=1)
        grader = _SHARED[policy]
    return grader.submit(response, golds).result()


def self_check(
    golds: Sequence[Any], policy: str = policies.DEFAULT, *, sample: int = 5_000, seed: int = 0
) -> list[Ungradable]:
    """Grades every gold against itself, as if a model had boxed it.

    Args:
      golds: per question, one gold or several acceptable ones.
      policy: a call-like string, see `policies`.
      sample: questions looked at, at most; drawn by `seed` where there are more.

    Returns:
      The golds that earn nothing, a question without any gold among them.
    """
    indices = list(range(len(golds)))
    if len(indices) > sample:
        indices = sorted(random.Random(seed).sample(indices, sample))
    cases = []
    for index in indices:
        texts = policies.gold_texts(golds[index])
        cases += [(index, text) for text in texts or ("",)]
    with Grader(policy) as grader:
        verdicts = grader.grade((boxed(gold), gold) for _, gold in cases)
    return [
        Ungradable(index, gold, verdict.reason)
        for (index, gold), verdict in zip(cases, verdicts, strict=True)
        if not verdict.reward
    ]


def boxed(answer: str) -> str:
    """A response that ends in `answer`, in the form that every policy reads."""
    return f"<think>\nLet me work it out.\n</think>\n\nThe final answer is \\boxed{{{answer}}}."


def refuse_all_zero(verdicts: Iterable[Verdict], policy: str) -> None:
    """Stops a run whose first batch earned nothing: such a run cannot learn.

    Raises:
      ValueError: no verdict has reward 1; the message counts the reasons and says what each
        points to.
    """
    counts = collections.Counter()
    for verdict in verdicts:
        if verdict.reward:
            return
        counts[verdict.reason.partition(":")[0]] += 1
    advice = {
        "no_think_close": "the model closes no </think>: choose think='none' or think='auto', or "
        "give it more tokens",
        "no_box": "the model writes no \\boxed{}: check the instruction in the prompt",
        "unterminated_box": "responses are cut short: raise the response length",
        "unequal": "the model is wrong everywhere: check the pairing of questions and golds, or "
        "start from an easier set",
        "timeout": "grading is cut off: raise timeout_s or use fewer workers",
    }
    lines = [
        f"  {count:6d} x {reason}" + (f" ({advice[reason]})" if reason in advice else "")
        for reason, count in counts.most_common()
    ]
    raise ValueError(
        f"reward: the first batch earned nothing under policy {policy!r}, so there is nothing to "
        "learn from. What the grader saw:\n" + "\n".join(lines)
    )
