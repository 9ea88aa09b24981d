"""Dynamic sampling and the curriculum: pure choices, the same after a restart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.data import order, selection


def test_informative_questions_have_both_kinds_of_answer():
    reward_QN = np.array([[1, 1], [0, 0], [1, 0], [1, 0]])
    valid_QN = np.array([[1, 1], [1, 1], [1, 1], [1, 0]])
    assert selection.informative(reward_QN).tolist() == [False, False, True, True]
    assert selection.informative(reward_QN, valid_QN).tolist() == [False, False, True, False]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 9), st.integers(0, 999))
def test_a_step_may_ask_every_question_once_and_its_own_batch_first(n, size, seed, step):
    size = min(n, size)
    sequence = selection.epochs()(n, size, seed, step)
    assert np.array_equal(sequence[:size], order.batch(n, size, seed, step))
    assert sorted(sequence) == list(range(n))


def test_refills_differ_between_steps():
    first = [tuple(selection.epochs()(100, 10, 0, step)[10:20]) for step in range(5)]
    assert len(set(first)) == 5


@given(
    st.sampled_from(["epochs", "easy_first", "easy_first(start=0.1, steps=7)"]),
    st.integers(4, 40),
    st.integers(0, 9),
    st.integers(0, 60),
)
def test_a_resumed_run_asks_the_same_questions(text, n, seed, step):
    """An order made anew and asked for one step only agrees with one that went all the way."""
    p_Q = np.random.default_rng(n).random(n)
    run = selection.make_order(text, p_Q)
    went = [run(n, 4, seed, s) for s in range(step + 1)]
    assert np.array_equal(selection.make_order(text, p_Q)(n, 4, seed, step), went[-1])


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.data())
def test_choice_takes_the_first_informative_and_fills_up(flags, data):
    need = data.draw(st.integers(1, len(flags)))
    chosen = selection.choose(flags, need)
    assert len(set(chosen)) == need and list(chosen) == sorted(chosen)
    yes = [i for i, flag in enumerate(flags) if flag]
    no = [i for i, flag in enumerate(flags) if not flag]
    assert set(chosen) == set((yes + no)[:need])


def test_choice_needs_enough_candidates():
    with pytest.raises(ValueError, match="2 candidates for 3 places"):
        selection.choose([True, False], 3)


@given(st.integers(8, 60), st.integers(0, 99), st.integers(0, 9))
def test_curriculum_starts_easy_and_ends_with_everything(n, step, seed):
    p_Q = np.random.default_rng(seed).random(n)
    sequence = selection.easy_first(p_Q, start=0.3, steps=50)(n, 8, seed, step)
    share = min(1.0, 0.3 + 0.7 * step / 50)
    pool = max(8, round(share * n))
    assert len(set(sequence)) == len(sequence) == pool
    assert p_Q[sequence].min() >= np.sort(p_Q)[::-1][pool - 1]


def test_curriculum_reaches_the_hardest_question_and_ranks_unmeasured_ones_between():
    curriculum = selection.easy_first(np.linspace(1, 0, 20), steps=50)
    late = np.concatenate([curriculum(20, 4, 0, s)[:4] for s in range(50, 100)])
    assert set(late) == set(range(20))
    rates = np.array([0.9, np.nan, 0.1])
    assert selection.easy_first(rates, start=0.34)(3, 1, 0, 0).tolist() == [0]
    both = {int(selection.easy_first(rates, start=0.67)(3, 1, s, 0)[0]) for s in range(30)}
    assert both == {0, 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("easy_first(start=0)", "start=0 must be a number above 0"),
        ("easy_first(start=1.5)", "start=1.5 must be a number above 0 and below 1"),
        ("easy_first(steps=0)", "steps=0 must be a number at least 1"),
        ("easy_first(p_Q=3)", "no parameter 'p_Q'"),
        ("hard_first", "no order 'hard_first'"),
    ],
)
def test_an_order_that_is_none(text, message):
    with pytest.raises(ValueError, match=message):
        selection.make_order(text, np.ones(8))


def test_a_curriculum_needs_rates():
    with pytest.raises(ValueError, match="no success rates: name an evaluation"):
        selection.make_order("easy_first", None)
