"""Rewards by name: what each pays, and what a wrong name is told."""

import numpy as np
import pytest

from disco_jax.reward import Grader, policies


@pytest.mark.parametrize(
    ("policy", "response", "golds", "reward"),
    [
        ('math(think="none")', "\\boxed{x+1}", "1+x", 1),
        ('math(think="none")', "\\boxed{x+1}", "1-x", 0),
        ("math", "\\boxed{5}", "5", 0),
        ('exact(think="none")', "\\boxed{New  York}", "new york", 1),
        ('exact(think="none")', "\\boxed{1/2}", "0.5", 0),
        ('numeric(think="none")', "\\boxed{\\frac13}", "0.3333333", 1),
        ('numeric(tolerance=0.01, think="none")', "\\boxed{3.15}", "\\pi", 1),
        ('numeric(tolerance=0.001, think="none")', "\\boxed{3.15}", "\\pi", 0),
        ('numeric(tolerance=0, think="none")', "\\boxed{x}", "1", 0),
        ('choice(think="none")', "\\boxed{\\text{(B)}}", "B", 1),
        ('choice(think="none")', "\\boxed{b) 12}", "B", 1),
        ('choice(think="none")', "\\boxed{B or C}", "B", 0),
        ('choice(think="none")', "\\boxed{12}", "B", 0),
        ('function(path="grading_functions:length")', "abc", 3, 1),
        ('function(path="grading_functions:length")', "abcd", 3, 0),
        ("official", "a</think>\\boxed{5}", "5", 1),
        ("official", "a</think>\\boxed{2+3}", "5", 0),
    ],
)
def test_reward(policy, response, golds, reward):
    with Grader(policy) as grader:
        assert grader.grade([(response, golds)])[0].reward == reward


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("maths", "did you mean 'math'"),
        ('math(think="maybe")', "required, none, auto"),
        ("numeric(tolerance=-1)", "at least 0"),
        ("numeric(tol=1)", "Takes: numeric(tolerance"),
        ('function(path="os.system")', "package.module:function"),
        ("math(", "not a name or a call"),
    ],
)
def test_a_wrong_policy_is_told_what_there_is(policy, words):
    with pytest.raises(ValueError, match=words.replace("(", "\\(")):
        Grader(policy)


def test_golds_of_every_kind_become_texts():
    assert policies.gold_texts("5") == ("5",)
    assert policies.gold_texts(5) == ("5",)
    assert policies.gold_texts(142.0) == ("142",)
    assert policies.gold_texts(2.5) == ("2.5",)
    assert policies.gold_texts([4, "5\n"]) == ("4", "5\n")
    assert policies.gold_texts(np.array(["1", "2"])) == ("1", "2")
    assert policies.gold_texts(np.float64(7.0)) == ("7",)
    assert policies.gold_texts(np.int64(7)) == ("7",)
    assert policies.gold_texts(None) == ("",)
    assert policies.gold_texts([]) == ()


def test_a_function_that_returns_no_reward_stops_the_run():
    with Grader('function(path="grading_functions:not_a_reward")') as grader:
        with pytest.raises(RuntimeError, match="returned 0.5; a reward is 0 or 1"):
            grader.grade([("a", "b")])


def test_a_function_that_is_not_there_is_an_error_not_a_zero():
    with Grader('function(path="grading_functions:absent")') as grader:
        with pytest.raises(RuntimeError, match="did not start"):
            grader.grade([("a", "b")])
