r"""The rules of DisCO's published grader, restated, so that its numbers can be reproduced.

They are the official policy of `policies`, sensible or not. An answer is right where either of two
comparisons says so:

*Strings*: both sides normalised (units after `\text{ ` cut, degree signs and percent signs
dropped, `\frac12` braced, `k=` dropped, `a/b` made a fraction), then equal character by character.

*Algebra*: both sides normalised another way (LaTeX turned into plain text, unit words and braces
dropped, lower case), then equal, or equal component by component in a tuple: fractions only
literally, whole numbers only literally, anything else by sympy's `simplify(gold - answer) == 0`,
which is tried only where at most two different letters and no long exponents occur.

Extraction takes the text between the first and the second `</think>`, whatever follows. Where the
published code would evaluate for ever, this one says wrong; `official_algebra` reads expressions
without evaluating them as code.
"""

import functools
import re

from disco_jax.reward.verdict import Outcome

MAX_ANSWER = 4_000
MAX_DEPTH = 12  # of braces: the library reads the content of an accent twice at every level
_UNITS = (
    "degree cm centimeter meter mile second minute hour day week month year foot feet inch yard"
).split()
_BRACKETS = "()[]"
_WHOLE_TEXT = re.compile(r"^\\text\{(.+?)\}$")
_GROUPED = re.compile(r"(\d),(\d\d\d)($|\D)")
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")


def extract(response: str) -> str | None:
    """The answer the published code reads; None where it gives 0 for want of one."""
    parts = response.split("</think>", 2)
    return None if len(parts) < 2 else _last_box(parts[1])


def _last_box(text: str) -> str | None:
    r"""The last `\boxed{...}`, braces counted without regard to escapes; `\boxed 5` is none."""
    start = text.rfind("\\boxed")
    if start < 0:
        return None
    depth = 0
    for match in re.compile("[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0 and match.group() == "}":
            box = text[start : match.end()]
            return box[7:-1] if box.startswith("\\boxed{") else None
    return None


def grade(answer: str, golds: tuple[str, ...]) -> Outcome:
    """The published verdict on an extracted answer.

    Args:
      answer: from `extract`.
      golds: acceptable answers, as text; a boxed one is unboxed.
    """
    if len(answer) > MAX_ANSWER:
        return Outcome(0, "too_long")
    texts = [_last_box(gold) if "\\boxed" in gold else gold for gold in golds]
    for gold in texts:
        if gold is None:
            continue
        if string_form(answer) == string_form(gold):
            return Outcome(1, "string")
        if _same_algebra(answer, gold):
            return Outcome(1, "equal")
    return Outcome(0, "unequal")


@functools.lru_cache(maxsize=4096)
def string_form(text: str) -> str:
    """The normal form of the string comparison."""
    stripped = text.strip()
    whole = _WHOLE_TEXT.search(stripped)
    if whole:
        stripped = whole.group(1).strip()
    try:
        return _string_form(stripped)
    except (IndexError, AssertionError, ValueError):
        return stripped


def _string_form(text: str) -> str:
    for old, new in (
        ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"),
        ("\\left", ""), ("\\right", ""), ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""),
    ):  # fmt: skip
        text = text.replace(old, new)
    before, *units = text.split("\\text{ ")
    if len(units) > 1:
        raise ValueError("two units")
    text = before.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _braced_fractions(_braced_roots(text).replace(" ", ""))
    return _slash_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _braced_roots(text: str) -> str:
    first, *rest = text.split("\\sqrt")
    fixed = [part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}" for part in rest]
    return "\\sqrt".join([first, *fixed])


def _braced_fractions(text: str) -> str:
    first, *rest = text.split("\\frac")
    fixed = []
    for part in rest:
        if part[0] != "{":
            if len(part) < 2:
                return text
            top, bottom = part[0], part[1]
            bottom = bottom if bottom == "{" else f"{{{bottom}}}"
            part = f"{{{top}}}{bottom}{part[2:]}"
        fixed.append(part)
    return "\\frac".join([first, *fixed])


def _slash_fraction(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2:
        return text
    try:
        top, bottom = int(parts[0]), int(parts[1])
    except ValueError:
        return text
    return f"\\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text


def _same_algebra(answer: str, gold: str) -> bool:
    wanted, given = algebra_form(gold), algebra_form(answer)
    if wanted == given:
        return True
    if not given:
        return False
    golds, answers = _components(wanted), _components(given)
    if len(golds) > 1 and (wanted[0], wanted[-1]) != (given[0], given[-1]):
        return False
    if len(golds) != len(answers) or not golds:
        return False
    return all(_same_component(g, a) for g, a in zip(golds, answers, strict=True))


def _same_component(gold: str, answer: str) -> bool:
    from disco_jax.reward import official_algebra

    if _FRACTION.search(gold) and _FRACTION.search(answer):
        return gold == answer
    if _is_whole(gold) != _is_whole(answer):
        return False
    return official_algebra.equal(gold, answer)


@functools.lru_cache(maxsize=4096)
def algebra_form(text: str) -> str:
    """The normal form of the algebraic comparison."""
    whole = _WHOLE_TEXT.search(text)
    text = whole.group(1) if whole else text
    for old, new in (
        ("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "),
        ("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12"),
    ):  # fmt: skip
        text = text.replace(old, new)
    for unit in _UNITS:
        text = re.sub(rf"{unit}(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text and text[0] == "{" and text[-1] == "}":
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    if (number := _float(text)) is not None and _near_whole(number):
        text = str(int(round(number)))
    if "\\" in text:
        text = _plain(text)
    text = re.sub("- *", "-", text)
    text = re.sub("([0-9]) +([0-9])", r"\1+\2", text)  # mixed numbers
    text = text.replace(" ", "").replace("{", "").replace("}", "").lower()
    return str(int(float(text.replace(",", "")))) if _is_whole(text) else text


def _plain(text: str) -> str:
    """LaTeX as plain text, in the way of the library that the published code uses."""
    from pylatexenc.latex2text import LatexNodes2Text

    text = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac")
    if _depth(text) > MAX_DEPTH:
        return text
    try:
        plain = LatexNodes2Text().latex_to_text(text.replace("\\frac", " \\frac"))
    except Exception:  # the library's own errors have no common class; the text stays as it is
        return text
    for sign, name in (("√", "sqrt"), ("π", "pi"), ("∞", "inf"), ("∪", "U"), ("·", "*")):
        plain = plain.replace(sign, name)
    return plain.replace("×", "*").strip()


def _depth(text: str) -> int:
    """The deepest nesting of braces."""
    level = deepest = 0
    for brace in re.findall("[{}]", text):
        level += 1 if brace == "{" else -1
        deepest = max(deepest, level)
    return deepest


def _components(text: str) -> list[str]:
    """The parts of a tuple or interval without inner brackets; else the text itself."""
    text = _ungrouped(text)
    if not text:
        return []
    inner = text[1:-1]
    bracketed = len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS
    if bracketed and not any(bracket in inner for bracket in _BRACKETS):
        return [part.strip() for part in inner.split(",")]
    return [text]


def _ungrouped(text: str) -> str:
    """Without the commas of thousands."""
    while (shorter := _GROUPED.sub(r"\1\2\3", text)) != text:
        text = shorter
    return text


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _near_whole(number: float) -> bool:
    try:
        return abs(number - int(round(number))) <= 1e-7
    except (OverflowError, ValueError):
        return False


def _is_whole(text: str) -> bool:
    number = _float(_ungrouped(text))
    return number is not None and _near_whole(number)
