"""Built-in arithmetic: right answers, worked steps that hold, splits that never meet."""

import collections
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disco_jax.data.arithmetic import _key, arithmetic, parse, split_of, worked_example
from disco_jax.types import Question

TRAIN = arithmetic("train", 1000)
PINNED = ["Compute 9*2.", "Compute 9-2-173.", "Compute 937+3+(7+43)."]


def python_value(problem: str) -> int:
    expression = problem.removeprefix("Compute ").removesuffix(".")
    assert re.fullmatch(r"[0-9+*()-]+", expression)
    return eval(expression)  # the independent check: Python's own arithmetic on our own text


def test_worked_example_of_the_docstring():
    question = Question("x", "Compute (17+5)*3-8.", ("58",))
    assert worked_example(question) == "17+5=22\n22*3=66\n66-8=58\n\\boxed{58}"
    question = Question("x", "Compute 6-(2-5)*4.", ("18",))
    assert worked_example(question) == "2-5=-3\n-3*4=-12\n6-(-12)=18\n\\boxed{18}"


def test_answers_and_every_worked_line_are_right():
    for question in TRAIN:
        (gold,) = question.golds
        assert int(gold) == python_value(question.problem)
        *lines, last = worked_example(question).split("\n")
        assert last == f"\\boxed{{{gold}}}"
        assert len(lines) == int(question.level)
        for line in lines:
            left, right = line.rsplit("=", 1)
            assert eval(left) == int(right) and abs(int(right)) < 10_000


def test_levels_take_turns_and_every_operator_and_operand_size_occurs():
    assert collections.Counter(q.level for q in TRAIN) == dict.fromkeys("12345", 200)
    text = " ".join(q.problem for q in TRAIN)
    assert all(c in text for c in "+-*()")
    assert {len(n) for n in re.findall(r"\d+", text)} == {1, 2, 3}


def test_the_same_seed_gives_the_same_questions_for_ever():
    """Pinned: a change of these lines makes saved runs and the shipped policy incomparable."""
    assert [q.problem for q in arithmetic("train", 5)] == [q.problem for q in TRAIN[:5]]
    assert [q.problem for q in arithmetic("heldout", 3, seed=7)] == PINNED


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 3))
def test_splits_never_overlap_and_hold_no_duplicates(seed, other, digits):
    train = arithmetic("train", 100, seed, digits=digits, levels=(1, 2, 3))
    heldout = arithmetic("heldout", 20, other, digits=digits, levels=(2, 3))
    keys = [[_key(parse(q.problem)) for q in part] for part in (train, heldout)]
    assert len(set(keys[0])) == 100 and len(set(keys[1])) == 20
    assert not set(keys[0]) & set(keys[1])


def test_operand_order_does_not_leak_across_the_split():
    for a, b in ((3, 4), (17, 250), (9, 88)):
        for op in "+*":
            one, two = (_key(parse(f"Compute {x}{op}{y}.")) for x, y in ((a, b), (b, a)))
            assert one == two and split_of(one) == split_of(two)
    assert _key(parse("Compute 3-4.")) != _key(parse("Compute 4-3."))


def test_held_out_share_is_one_in_eight():
    keys = [f"({a}+{b})" for a in range(100) for b in range(a, 100)]
    share = sum(split_of(k) == "heldout" for k in keys) / len(keys)
    assert abs(share - 1 / 8) < 0.015


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(split="test", size=1), "one of train, heldout"),
        (dict(split="train", size=1, levels=()), "levels a tuple of 1 to 9"),
        (dict(split="train", size="5"), "size at least 1"),
        (dict(split="train", size=1, digits=4), "digits from 1 to 3"),
        (dict(split="train", size=10_000, levels=(1,), digits=1), "ask for fewer"),
    ],
)
def test_impossible_requests_are_refused_by_name(kwargs, message):
    with pytest.raises(ValueError, match=message):
        arithmetic(**kwargs)


@pytest.mark.parametrize(
    "problem", ["1+1", "Compute 2**9.", "Compute (1.", "Compute a.", "Compute 4//2.", "Compute -3."]
)
def test_foreign_text_is_refused(problem):
    with pytest.raises(ValueError):
        parse(problem)
