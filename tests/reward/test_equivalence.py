"""The conventions, case by case, and the laws every verdict obeys."""

import pytest
from grading_cases import CASES

from disco_jax.reward import equivalence, policies
from disco_jax.reward.guard import boxed
from disco_jax.reward.verdict import Outcome

POLICY = policies.build("math")
POLICY.load()


def verdict(answer, golds):
    golds = policies.gold_texts(golds)
    look = POLICY.first_look(boxed(answer), golds)
    return look if isinstance(look, Outcome) else POLICY.judge(look, golds)


@pytest.mark.parametrize("convention", CASES)
def test_convention(convention):
    wrong = [
        (answer, gold, found.reason)
        for answer, gold, expected in CASES[convention]
        if (found := verdict(answer, gold)).reward != expected
    ]
    assert not wrong


# Verdicts that depend on which side is the gold, by convention.
ONE_SIDED = {"scientific", "degenerate", "choices", "spelling", "multiple golds"}


@pytest.mark.parametrize("convention", sorted(set(CASES) - ONE_SIDED))
def test_equality_is_symmetric(convention):
    for answer, gold, expected in CASES[convention]:
        if isinstance(gold, str) and gold and answer:
            assert verdict(gold, answer).reward == expected, (gold, answer)


@pytest.mark.parametrize("convention", sorted(set(CASES) - {"degenerate"}))
def test_equality_is_reflexive_even_under_another_spelling(convention):
    for pair in CASES[convention]:
        for text in pair[:2]:
            if isinstance(text, str) and verdict(text, text).reward:
                spelt = text.replace("\\frac", "\\dfrac")
                assert verdict(f"\\displaystyle {spelt}", text).reward, text


def test_any_of_several_golds_may_match():
    assert verdict("5", ["4", "5"]).reward
    assert verdict("5", [4, 5]).reward
    assert not verdict("6", ["4", "5"]).reward
    assert not verdict("4, 5", ["4", "5"]).reward
    assert not verdict("5", []).reward
    assert not verdict("5", [""]).reward
    assert verdict("5", ["", "5"]).reward


def test_numbers_are_compared_exactly():
    assert not verdict("12345678901234567891", "12345678901234567890").reward
    assert not verdict("e^{\\pi\\sqrt{163}}", "262537412640768744").reward
    assert not verdict("2^{1009}", "2^{1010}").reward
    assert not verdict("\\frac{1}{2006!}", "\\frac{1}{2004!}").reward
    assert not verdict("1+10^{-70}", "1").reward
    assert not verdict("e^{-1000}", "0").reward
    assert verdict("\\sin(\\pi)", "0").reward


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9^{9}}}",
        "9**9**9**9",
        "99999999!",
        "3!!!!!!!",
        "\\binom{10^9}{5\\cdot 10^8}",
        "1e999999999",
        "\\sin(10^{10^{10}})",
        "\\lfloor \\pi^{\\pi^{\\pi^{\\pi}}} \\rfloor",
        "(" * 5000 + "6" + ")" * 5000,
        "\\frac{1}{" * 900 + "6" + "}" * 900,
        "x^" * 1500 + "x",
        "1" + "\\pm 1" * 40,
        "\\sum_{k=1}^{10^9} k",
        "\\gcd(10^{10^{10}}, 6)",
        "7" * 3999,
    ],
)
def test_huge_values_are_neither_computed_nor_rewarded(text):
    for gold in ("\\frac{5}{2}", "\\sqrt{7}", "x"):
        assert verdict(text, gold).reward == 0


def test_reasons_say_what_happened():
    assert verdict("5", "5").reason == "string"
    assert verdict("0.50", "\\frac12").reason == "number"
    assert verdict("2x", "x+x").reason == "equal"
    assert verdict("x", "y").reason == "unequal"
    assert verdict("3.24e5", "3.2e5").reason == "rounded"
    assert verdict("\\mho(x)", "y").reason.startswith("unreadable")
    assert verdict("5", "").reason == "no_gold"


def test_unreadable_golds_pay_only_their_own_text():
    gold = "$f(x)=a x+b$, where $\\mho(a)=0$"
    assert verdict("f(x)=ax+b, where \\mho(a)=0", "x").reward == 0
    assert verdict(gold, gold).reward == 1
    assert verdict("0", gold).reward == 0


def test_real_value():
    assert equivalence.real_value("\\frac12") == 0.5
    assert equivalence.real_value("50\\%") == 0.5
    assert equivalence.real_value("3\\text{ cm}") == 3
    assert equivalence.real_value("x") is None
    assert equivalence.real_value("\\infty") is None
