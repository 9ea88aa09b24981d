"""The rewards a run can choose from, each named by a call-like string.

    math(think="required")   mathematical equality of the last boxed answer (the default)
    official                 the rules of DisCO's published code, for reproducing its numbers
    exact(think="required")  the answer's text, up to case and white space
    numeric(tolerance=1e-6)  one number, within a relative tolerance
    choice                   one letter of a multiple choice
    function(path="package.module:name")   a user's function (response, golds) -> number or bool

A policy works in two moments. `first_look` runs in the calling process, in time linear in the
response: it settles what is cheap and certain, or returns the text that is left to judge.
`load` (what `judge` needs, imported before the clock runs) and `judge` do the rest, in a process
that can be killed.
"""

import importlib
import logging
import math
import numbers
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from disco_jax import calls
from disco_jax.reward import answer, plain
from disco_jax.reward.verdict import Outcome

DEFAULT = "math"


class Policy(Protocol):
    """How responses become outcomes; see the module's text for the two moments."""

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str: ...

    def load(self) -> None: ...

    def judge(self, text: str, golds: tuple[str, ...]) -> Outcome: ...


def build(policy: str) -> Policy:
    """The policy a call-like string names.

    Raises:
      ValueError: an unknown name or parameter; the message lists what there is.
    """
    return calls.build(policy, POLICIES, "reward policy")


def gold_texts(golds: Any) -> tuple[str, ...]:
    """Golds as texts: one gold or a list of acceptable ones; numbers, strings or an array.

    A float with an integral value is that integer (`142.0` -> `"142"`).
    """
    if hasattr(golds, "tolist"):
        golds = golds.tolist()
    if isinstance(golds, str) or not isinstance(golds, Iterable):
        golds = [golds]
    return tuple(_gold_text(gold) for gold in golds)


def _gold_text(gold: Any) -> str:
    if gold is None:
        return ""
    if isinstance(gold, numbers.Real) and not isinstance(gold, numbers.Integral):
        value = float(gold)
        return str(int(value)) if value.is_integer() else repr(value)
    return str(gold)


class Math:
    """The last box of the final part, graded by `equivalence.equivalent`."""

    def __init__(self, think: str = "required"):
        if think not in answer.THINK:
            raise ValueError(f"think={think!r} is not one of {', '.join(answer.THINK)}")
        self.think = think

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        text, reason = answer.extract(response, self.think)
        if text is None:
            return Outcome(0, reason)
        if not any(gold.strip() for gold in golds):
            return Outcome(0, "no_gold")
        if any(text == gold.strip() for gold in golds):
            return Outcome(1, "string")
        verdicts = [plain.compare(text, gold) for gold in golds]
        if True in verdicts:
            return Outcome(1, "number")
        return text if None in verdicts else Outcome(0, "unequal")

    def load(self) -> None:
        from disco_jax.reward import equivalence

        self._best = equivalence.best

    def judge(self, text: str, golds: tuple[str, ...]) -> Outcome:
        return self._best(text, golds)


class Exact:
    """Equal texts, up to case and white space, after the extraction of `math`."""

    def __init__(self, think: str = "required"):
        self._math = Math(think)

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        text, reason = answer.extract(response, self._math.think)
        if text is None:
            return Outcome(0, reason)
        same = any(gold.strip() and _squash(gold) == _squash(text) for gold in golds)
        return Outcome(1, "string") if same else Outcome(0, "unequal")

    def load(self) -> None: ...

    judge = first_look


class Numeric:
    """One number within a relative tolerance of the gold (absolute where the gold is 0)."""

    def __init__(self, tolerance: float = 1e-6, think: str = "required"):
        if not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
            raise ValueError(f"tolerance={tolerance!r} is not a number of at least 0")
        self.tolerance = tolerance
        self._math = Math(think)

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        text, reason = answer.extract(response, self._math.think)
        return Outcome(0, reason) if text is None else text

    def load(self) -> None:
        from disco_jax.reward import equivalence

        self._real_value = equivalence.real_value

    def judge(self, text: str, golds: tuple[str, ...]) -> Outcome:
        value = self._real_value(text)
        if value is None:
            return Outcome(0, "unreadable: not one real number")
        for gold in golds:
            target = self._real_value(gold)
            if target is not None and abs(value - target) <= self.tolerance * (abs(target) or 1):
                return Outcome(1, "equal")
        return Outcome(0, "unequal")


class Choice:
    """One letter: `B`, `(b)`, `\\text{B}`, `Option B.`, `B) 12`; a hedge between two is wrong."""

    _LETTER = re.compile(
        r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)(?:\s+is)?\s*:?\s*)?"
        r"[(\[]?([A-Za-z])(?:[)\].:](.*))?",
        re.IGNORECASE | re.DOTALL,
    )

    def __init__(self, think: str = "required"):
        self._math = Math(think)

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        text, reason = answer.extract(response, self._math.think)
        if text is None:
            return Outcome(0, reason)
        letter = self.letter(text)
        same = letter is not None and letter in {self.letter(gold) for gold in golds}
        return Outcome(1, "equal") if same else Outcome(0, "unequal")

    def load(self) -> None: ...

    judge = first_look

    @classmethod
    def letter(cls, text: str) -> str | None:
        """The upper-case letter chosen; None where the text is not one choice."""
        bare = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\b|[{}$*]", "", text[:400]).strip()
        match = cls._LETTER.fullmatch(bare)
        if match is None or re.search(r"(?i)\b(or|and)\b|[(\s][a-z][)]", match.group(2) or ""):
            return None
        return match.group(1).upper()


class Function:
    """A user's function, imported and called in the workers only."""

    def __init__(self, path: str):
        if not re.fullmatch(r"[\w.]+:\w+", path):
            raise ValueError(f"path={path!r} is not of the form 'package.module:function'")
        self.path = path

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        return response

    def load(self) -> None:
        module, _, name = self.path.partition(":")
        self._function: Callable[[str, tuple[str, ...]], Any] = getattr(
            importlib.import_module(module), name
        )

    def judge(self, text: str, golds: tuple[str, ...]) -> Outcome:
        value = self._function(text, golds)
        if value not in (0, 1):
            raise ValueError(f"{self.path} returned {value!r}; a reward is 0 or 1 (or a bool)")
        return Outcome(int(value), "function")


class Official(Math):
    """DisCO's published grader; see `official`."""

    def __init__(self):
        super().__init__()

    def first_look(self, response: str, golds: tuple[str, ...]) -> Outcome | str:
        from disco_jax.reward import official

        text = official.extract(response)
        return Outcome(0, "no_box") if text is None else text

    def load(self) -> None:
        from disco_jax.reward import official

        logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # it remarks on odd LaTeX
        self._grade = official.grade

    def judge(self, text: str, golds: tuple[str, ...]) -> Outcome:
        return self._grade(text, golds)


POLICIES: dict[str, Callable[..., Policy]] = {
    "math": Math,
    "official": Official,
    "exact": Exact,
    "numeric": Numeric,
    "choice": Choice,
    "function": Function,
}


def _squash(text: str) -> str:
    return " ".join(text.casefold().split())
