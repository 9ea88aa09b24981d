"""pass@k against enumeration, intervals against simulation, comparison against its null."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.eval import pass_at_k as m

verdicts = st.lists(st.booleans(), min_size=1, max_size=8)


@given(verdicts, st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(row, data):
    k = data.draw(st.integers(1, len(row)))
    subsets = list(itertools.combinations(row, k))
    (value,) = m.pass_at_k([row], k)
    assert value == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7))
def test_majority_vote_is_the_expected_share_of_right_winners(answers):
    """Against a count by hand: "a" is right, ties are broken by lot, None does not vote."""
    votes = [x for x in answers if x is not None]
    most = max((votes.count(x) for x in votes), default=0)
    winners = {x for x in votes if votes.count(x) == most}
    expected = ("a" in winners) / len(winners) if winners else 0.0
    (value,) = m.maj_at_k([answers], [[x == "a" for x in answers]])
    assert value == pytest.approx(expected)


def test_right_answers_vote_together_however_they_are_written():
    answers = [["1/2", "0.5", "3", "3", r"\frac12"]]
    assert m.maj_at_k(answers, [[1, 1, 0, 0, 1]]).tolist() == [1.0]


def test_majority_of_fewer_voters_is_averaged_over_subsets():
    answers, correct = [["a", "a", "b"]], [[1, 1, 0]]
    assert m.maj_at_k(answers, correct, k=1, draws=4000)[0] == pytest.approx(2 / 3, abs=0.03)
    assert m.maj_at_k(answers, correct, k=3)[0] == 1.0


@pytest.mark.parametrize("questions, a, b, samples", [(15, 2, 2, 8), (30, 0.4, 0.8, 16)])
def test_interval_covers_the_truth_as_often_as_it_says(questions, a, b, samples):
    """Per-question rates from Beta(a, b): the population mean is a / (a + b)."""
    rng, hits, trials = np.random.default_rng(0), 0, 1200
    for trial in range(trials):
        p_Q = rng.beta(a, b, questions)
        correct_QK = rng.binomial(1, p_Q[:, None], (questions, samples))
        _, low, high = m.pass_at_1(correct_QK, seed=trial)
        hits += low <= a / (a + b) <= high
    assert abs(hits / trials - 0.95) < 0.02


def test_interval_of_the_average_covers_it():
    rng, hits, trials = np.random.default_rng(1), 0, 400
    for trial in range(trials):
        parts = [rng.beta(1, 1, n) for n in (20, 20, 40)]
        _, low, high = m.average(parts, seed=trial)
        hits += low <= 0.5 <= high
    assert abs(hits / trials - 0.95) < 0.02


def test_interval_resamples_questions_not_responses():
    """64 copies of one verdict per question say no more than one."""
    once = np.random.default_rng(0).integers(0, 2, (40, 1))
    assert m.pass_at_1(once) == pytest.approx(m.pass_at_1(np.repeat(once, 64, 1)))


def test_no_success_is_not_certainty():
    """0 of 30: Clopper and Pearson's bound 1 - 0.025^(1/30) = 0.1157."""
    assert m.pass_at_1(np.zeros((30, 16))) == pytest.approx((0, 0, 0.11570), abs=1e-5)
    assert m.pass_at_1(np.ones((30, 16))) == pytest.approx((1, 0.88430, 1), abs=1e-5)
    assert m.pass_at_1([[1, 0]]) == (0.5, 0.0, 1.0)
    mean, low, high = m.average([np.zeros(30), np.zeros(60)])
    assert (mean, low) == (0, 0) and high == pytest.approx((0.11570 + 0.05963) / 2, abs=1e-4)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20))
def test_interval_is_ordered_bounded_and_repeatable(rows):
    mean, low, high = m.pass_at_1(rows)
    assert 0 <= low <= mean <= high <= 1
    assert m.pass_at_1(rows) == (mean, low, high)


def test_paired_comparison_finds_a_difference_that_single_intervals_hide():
    rng = np.random.default_rng(3)
    a_Q = rng.beta(0.5, 0.5, 100) * 0.9
    b_Q = a_Q + 0.05 + 0.02 * rng.standard_normal(100)
    found = m.compare(a_Q, b_Q)
    assert found.low > 0.04 and found.high < 0.06 and found.p_value < 0.001
    assert m.interval(a_Q)[2] > m.interval(np.clip(b_Q, 0, 1))[1]
    back = m.compare(b_Q, a_Q)
    assert back.difference == pytest.approx(-found.difference) and back.p_value == found.p_value


def test_p_value_is_uniform_where_nothing_differs():
    rng = np.random.default_rng(4)
    p = [m.compare(rng.random(20), rng.random(20), seed=i).p_value for i in range(300)]
    assert abs(np.mean(np.array(p) < 0.1) - 0.1) < 0.04


def test_equal_runs_do_not_differ():
    assert m.compare([0.5, 1.0], [0.5, 1.0]) == m.Comparison(0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: m.pass_at_1(np.zeros((0, 3))),
        lambda: m.pass_at_1([1, 0]),
        lambda: m.pass_at_1([[0.5]]),
        lambda: m.pass_at_k([[1, 0]], 3),
        lambda: m.pass_at_k([[1, 0]], 0),
        lambda: m.maj_at_k([["a"]], [[1]], k=2),
        lambda: m.compare([1.0], [1.0, 0.0]),
        lambda: m.interval([0.5, 1.5]),
        lambda: m.interval([0.5, 0.2], confidence=1.0),
        lambda: m.average([]),
    ],
)
def test_arguments_without_meaning_are_refused(call):
    with pytest.raises(ValueError):
        call()
