"""The official policy gives the verdicts of the published code."""

import json
import pathlib

import pytest

from disco_jax.reward import official, official_algebra, policies
from disco_jax.reward.verdict import Outcome

CASES = json.loads((pathlib.Path(__file__).parent / "data/official.json").read_text())["cases"]
POLICY = policies.build("official")
POLICY.load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["tag"])
def test_verdict(case):
    golds = case["ground_truth"]
    golds = tuple(map(str, golds if isinstance(golds, list) else [golds]))
    look = POLICY.first_look(case["response"], golds)
    found = look if isinstance(look, Outcome) else POLICY.judge(look, golds)
    assert found.reward == case["correct"], found


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("x+1", "1+x", True),
        ("n(n-1)", "n*n-n", True),
        ("2sqrt(2)", "sqrt(8)", True),
        ("0.5", "(1)/(2)", True),
        ("x^2", "x*x", True),
        ("xy", "yx", True),
        ("x+y+z", "z+y+x", False),  # three letters are not tried
        ("x^10", "x^10", False),  # nor long exponents
        ("1,2", "1,2", False),
        ("x=1", "x=1", False),
        ("__import__('os')", "0", False),
        ("9**9**9**9", "0", False),
        ("99999999!", "0", False),
    ],
)
def test_algebra(gold, answer, same):
    assert official_algebra.equal(gold, answer) is same


def test_deep_braces_do_not_reach_the_library():
    """It would read the content of an accent twice at every level: 2^60 times here."""
    deep = "\\hat{" * 60 + "x" + "}" * 60
    assert official.algebra_form(deep).startswith("\\hat")
    assert official.grade(deep, ("y",)) == Outcome(0, "unequal")
