r"""From a response to its final answer: the text inside the last box of the final part.

Rules, in order (`think` is the one knob; "closing tag" is the exact text `</think>`):

1. The final part. `think="required"`: what follows the last closing tag; without one there is
   no final part. `think="none"`: the whole response, for models that do not think in tags.
   `think="auto"`: as `required` where the response holds a tag, else the whole response.
2. The box. `\boxed{...}` and `\fbox{...}` count; the last one wins, and of nested boxes the
   innermost. Boxes are never joined. An escaped brace (`\{`) neither opens nor closes.
3. A last box that never closes is a response cut short: no answer, whatever came before.
4. An empty box is skipped (the one before it is read); only empty boxes: no answer.
5. `\boxed 5`: without braces the box holds the next token, a whole number counting as one.
6. An answer longer than `MAX_ANSWER` characters is no answer. No box: no answer.

Every step is linear in the length of the response.
"""

import re
from typing import NamedTuple

MAX_ANSWER = 4000
MAX_EMPTY_BOXES = 64  # rule 4 looks this far back
THINK = ("required", "none", "auto")

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_TOKEN = re.compile(r"\s*(-?\d+(?:\.\d+)?|[A-Za-z]|\\[A-Za-z]+(?:\{[^{}]*\})*)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


class Extraction(NamedTuple):
    """The answer's text, or None and the reason (a word of `verdict.Outcome`)."""

    text: str | None
    reason: str


def final_part(response: str, think: str) -> str | None:
    """Rule 1; None where the rule finds no final part."""
    head, tag, tail = response.rpartition("</think>")
    if tag and think != "none":
        return tail
    if think == "required" or (think == "auto" and "<think>" in response):
        return None
    return response


def extract(response: str, think: str = "required") -> Extraction:
    """Applies rules 1-6.

    Args:
      response: what the model wrote, without the prompt.
      think: one of `THINK`.
    """
    part = final_part(response, think)
    if part is None:
        return Extraction(None, "no_think_close")
    end = len(part)
    for _ in range(MAX_EMPTY_BOXES):
        start = max(part.rfind("\\boxed", 0, end), part.rfind("\\fbox", 0, end))
        if start < 0:
            break
        end = start
        head = _BOX.match(part, start)
        if head is None:
            continue
        text = _content(part, head.end())
        if text is None:
            return Extraction(None, "unterminated_box")
        if len(text) > MAX_ANSWER and len(text.strip()) > MAX_ANSWER:
            return Extraction(None, "too_long")
        if text.strip():
            return Extraction(text.strip(), "")
    return Extraction(None, "no_box" if end == len(part) else "empty_answer")


def _content(part: str, start: int) -> str | None:
    """What the box that opens at or after `start` holds; None where it never closes."""
    brace = start
    while brace < len(part) and part[brace].isspace():
        brace += 1
    if not part.startswith("{", brace):
        token = _TOKEN.match(part, start)
        return token.group(1) if token else None
    close = closing_brace(part, brace)
    return None if close is None else part[brace + 1 : close]


def closing_brace(text: str, start: int) -> int | None:
    r"""Where the brace that opens at `start` closes; `\{` and `\}` do not count."""
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.start()
    return None
