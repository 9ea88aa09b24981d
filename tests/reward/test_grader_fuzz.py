"""Whatever a model writes: no exception escapes, equality keeps its laws.

experiments/grader_fuzz runs these tests for longer, under a profile with more examples.
"""

import json
import pathlib

from hypothesis import given, settings
from hypothesis import strategies as st

from disco_jax.reward import answer, equivalence, official, policies
from disco_jax.reward.guard import boxed
from disco_jax.reward.verdict import Outcome

MANY = 2 * settings.default.max_examples
POLICY = policies.build("math")
POLICY.load()

PIECES = st.sampled_from(
    r"\frac \sqrt \left \right ( ) [ ] { } \{ \} | , ; : = < > \le \ge \ne \in \pm \mp + - * / ^ _ "
    r"! % \% \$ $ ' . 0 1 2 3 7 10 25 0.5 1,000 1e5 x y n k e i \pi \infty \alpha \text{ \mathrm{ "
    r"\text{or} \text{and} \text{cm} \text{yes} or and cm sin \sin \log \ln \log_2 \lfloor \rfloor "
    r"\cup \cap \setminus \emptyset \mathbb{R} \binom \choose \pmod \equiv \approx \sum_{k=1}^{n} "
    r"\begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ \overline \dot \circ ^\circ "
    r"\boxed{ \fbox{ \, \! \quad ~ f(x) (1,2) a_1 x^2 2^{10} \frac{1}{2} \sqrt{2} \to ½ "
    r"² √ π ∞ ± ≤ ∪ ° − × · 厘米 ５ é".split(" ")
)
FORMULAS = st.lists(PIECES, max_size=14).map(" ".join) | st.lists(PIECES, max_size=14).map("".join)
DATA = pathlib.Path(__file__).parent / "data" / "labelled.jsonl"
LABELLED = [json.loads(line) for line in DATA.read_text().splitlines()]
ANSWERS = st.sampled_from([case["answer"] for case in LABELLED if "answer" in case])


@st.composite
def mutated(draw):
    """A labelled answer cut somewhere, with a piece or part of another answer put in."""
    text, other = draw(ANSWERS), draw(ANSWERS | FORMULAS)
    cut, gap = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
    return text[:cut] + draw(st.sampled_from([other, other[:8], ""])) + text[cut + gap :]


TEXTS = st.text(max_size=60) | FORMULAS | mutated()
RESPONSES = st.lists(
    st.sampled_from(["<think>", "</think>", "\\boxed{", "\\fbox{", "{", "}", "\\{", "\\}", "\\"])
    | TEXTS,
    max_size=12,
).map("".join)


def judged(text, gold):
    outcome = POLICY.judge(text, (gold,))
    assert outcome.reward in (0, 1)
    return outcome


@given(RESPONSES, st.sampled_from(answer.THINK))
def test_extraction_never_fails(response, think):
    text, reason = answer.extract(response, think)
    assert (text is None) == bool(reason)
    assert text is None or (text.strip() == text and text)


@settings(max_examples=MANY)
@given(TEXTS, TEXTS)
def test_judging_never_fails(text, gold):
    judged(text, gold)


@settings(max_examples=MANY)
@given(FORMULAS | mutated())
def test_a_readable_answer_equals_itself(text):
    reading = equivalence.read(text)
    if text.strip() and reading.key:
        assert judged(text, text).reward == 1


@settings(max_examples=MANY)
@given(FORMULAS | mutated())
def test_nothing_but_five_is_five(text):
    """No text with another leaf of value than 5 is paid for the gold 5 by accident of parsing: what
    is paid reads as the number 5."""
    if judged(text, "5").reward:
        value = equivalence.real_value(text)
        trees = equivalence.read(text).trees
        assert value == 5 or any(tree.op in ("rel", "mod", "label", "set") for tree in trees)


@settings(max_examples=MANY)
@given(TEXTS, TEXTS)
def test_the_official_policy_never_fails(text, gold):
    assert official.grade(text, (gold,)).reward in (0, 1)


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_rational_numbers_are_equal_exactly_when_they_are(a, b):
    def spelt(x, style):
        sign = "-" if x < 0 else ""
        top, bottom = abs(x.numerator), x.denominator
        return f"{sign}\\frac{{{top}}}{{{bottom}}}" if style else f"{sign}{3 * top}/{3 * bottom}"

    for left in (0, 1):
        for right in (0, 1):
            x, y = spelt(a, left), spelt(b, right)
            look = POLICY.first_look(boxed(x), (y,))
            found = look if isinstance(look, Outcome) else POLICY.judge(x, (y,))
            assert found.reward == (a == b), (x, y)
            assert judged(x, y).reward == (a == b), (x, y)
