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
def test_refills_bring_every_other_question_once(n, size, seed, step):
    size = min(n, size)
    rounds = [selection.candidates(n, size, seed, step, r) for r in range(1, n // size + 3)]
    own = order.batch(n, size, seed, step)
    assert np.array_equal(selection.candidates(n, size, seed, step, 0), own)
    later = np.concatenate(rounds)
    assert sorted(later) == sorted(set(range(n)) - set(own))


def test_refills_differ_between_steps():
    first = [tuple(selection.candidates(100, 10, 0, step, 1)) for step in range(5)]
    assert len(set(first)) == 5


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
    chosen = selection.curriculum(p_Q, 8, seed, step, 100)
    assert len(set(chosen)) == 8
    assert np.array_equal(chosen, selection.curriculum(p_Q, 8, seed, step, 100))
    share = min(1.0, 0.3 + 0.7 * step / 50)
    pool = max(8, round(share * n))
    assert p_Q[chosen].min() >= np.sort(p_Q)[::-1][pool - 1]


def test_curriculum_reaches_the_hardest_question_and_ranks_unmeasured_ones_between():
    p_Q = np.linspace(1, 0, 20)
    late = np.concatenate([selection.curriculum(p_Q, 4, 0, s, 100) for s in range(50, 100)])
    assert set(late) == set(range(20))
    early = selection.curriculum(np.array([0.9, np.nan, 0.1]), 1, 0, 0, 10, start=0.34)
    assert early.tolist() == [0]
    both = {
        int(selection.curriculum(np.array([0.9, np.nan, 0.1]), 1, s, 0, 10, start=0.67)[0])
        for s in range(30)
    }
    assert both == {0, 1}


@pytest.mark.parametrize("kwargs", [dict(start=0), dict(full=2), dict(step=10), dict(batch_size=9)])
def test_curriculum_arguments(kwargs):
    base = dict(p_Q=np.ones(8), batch_size=4, seed=0, step=0, steps=10)
    with pytest.raises(ValueError, match="shares in"):
        selection.curriculum(**(base | kwargs))
