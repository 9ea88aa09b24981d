"""Question sets: prompts padded once, and a fingerprint that notices what a run depends on."""

import dataclasses

import pytest

from disco_jax.data import sets
from disco_jax.data.arithmetic import arithmetic


def encode(problem):
    return [ord(c) for c in problem]


def prepare(questions, encode=encode, width=40):
    return sets.prepare(questions, encode, width, pad_id=0)


def test_prompts_come_back_whole():
    questions = arithmetic("heldout", 6)
    made = prepare(questions)
    assert len(made) == 6 and made.prompt_QP.shape == (6, 40)
    for i, question in enumerate(questions):
        assert made.prompt(i) == encode(question.problem)


def test_a_fingerprint_notices_every_change():
    questions = arithmetic("heldout", 6)
    first = dataclasses.replace(questions[0], golds=("1",))
    renamed = dataclasses.replace(questions[0], id="other")
    same = prepare(questions).fingerprint()
    assert prepare(list(questions)).fingerprint() == same
    for changed in ([first, *questions[1:]], [renamed, *questions[1:]], questions[::-1]):
        assert prepare(changed).fingerprint()["questions"] != same["questions"]
    assert prepare(questions[:5]).fingerprint()["number of questions"] == 5
    other = prepare(questions, lambda problem: [*encode(problem), 7]).fingerprint()
    assert other["questions"] == same["questions"] and other["prompts"] != same["prompts"]


def test_padding_is_part_of_the_prompts_and_long_ones_are_never_cut():
    questions = arithmetic("heldout", 6)
    assert prepare(questions, width=50).fingerprint() != prepare(questions).fingerprint()
    with pytest.raises(ValueError, match="prompt 0 has"):
        prepare(questions, width=3)
    with pytest.raises(ValueError, match="no question"):
        prepare([])
