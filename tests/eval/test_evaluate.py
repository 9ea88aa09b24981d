"""Evaluations: killed anywhere they end the same, and verdicts can be renewed without sampling."""

import json
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.data.arithmetic import arithmetic
from disco_jax.eval import evaluate as m
from disco_jax.eval import responses
from disco_jax.reward import Grader, Verdict

QUESTIONS = arithmetic("heldout", 10)
K = 4


class Killed(Exception):
    pass


def make_sampler(stop_after: int | None = None, calls: list | None = None):
    """Random answers keyed by (index, sample); raises once it has given `stop_after` responses."""
    given_out = 0

    def sample(questions, indices, k, finish):
        nonlocal given_out
        pairs = [(q, i, s) for q, i in zip(questions, indices, strict=True) for s in range(k)]
        for place in np.random.default_rng(indices[0]).permutation(len(pairs)):
            question, index, s = pairs[place]
            if given_out == stop_after:
                raise Killed
            rng = np.random.default_rng((index, s))
            answer = int(question.golds[0]) + int(rng.integers(0, 2))
            text = f"so\u2028it is \\boxed{{{answer}}}" if rng.random() < 0.8 else "no idea"
            given_out += 1
            if calls is not None:
                calls.append((index, s))
            finish(m.Sampled(index, s, text, int(rng.integers(1, 50)), bool(rng.random() < 0.9)))

    return sample


def verdict(reward: bool) -> Future:
    future = Future()
    future.set_result(Verdict(int(reward), "toy", 0.0))
    return future


def grade(text, golds):
    return verdict(m.boxed(text) in golds)


def run(path, sampler, **kwargs):
    return m.evaluate(QUESTIONS, K, sampler, grade, path, {"model": "toy"}, chunk=3, **kwargs)


def same(a, b):
    return (
        np.array_equal(a.correct_QK, b.correct_QK)
        and np.array_equal(a.length_QK, b.length_QK)
        and np.array_equal(a.ended_QK, b.ended_QK)
        and a.answers_QK == b.answers_QK
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "r.jsonl", make_sampler())


@given(stops=st.lists(st.integers(0, 25), max_size=4), cut=st.integers(0, 200), source=st.randoms())
def test_a_run_killed_anywhere_ends_like_one_that_was_not(
    whole, tmp_path_factory, stops, cut, source
):
    path = tmp_path_factory.mktemp("killed") / "r.jsonl"
    for stop in stops:
        try:
            run(path, make_sampler(stop))
        except Killed:
            data = path.read_bytes()
            path.write_bytes(data[: max(0, len(data) - source.randint(0, cut))])
    assert same(run(path, make_sampler()), whole)


def test_a_finished_evaluation_samples_nothing(tmp_path, whole):
    run(tmp_path / "r.jsonl", make_sampler())
    calls = []
    assert same(run(tmp_path / "r.jsonl", make_sampler(calls=calls)), whole)
    assert calls == []


def test_only_questions_with_missing_responses_are_sampled_again(tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(Killed):
        run(path, make_sampler(stop_after=3 * K + 5))
    calls = []
    run(path, make_sampler(calls=calls))
    assert {index for index, _ in calls}.isdisjoint({0, 1, 2})


def test_every_response_is_in_the_file_when_it_is_finished(tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(Killed):
        run(path, make_sampler(stop_after=7))
    assert len(responses.read(path)[1]) == 7


def test_a_saved_evaluation_reads_back_or_says_what_is_off(tmp_path, whole):
    path = tmp_path / "r.jsonl"
    with pytest.raises(Killed):
        run(path, make_sampler(stop_after=7))
    with pytest.raises(ValueError, match="missing"):
        m.saved(path, QUESTIONS)
    run(path, make_sampler())
    assert same(m.saved(path, QUESTIONS), whole)
    with pytest.raises(ValueError, match="not an evaluation of these questions"):
        m.saved(path, QUESTIONS[:5])


def test_sampling_does_not_wait_for_the_grader(tmp_path):
    """The first verdict comes only after the chunk's last response has been handed over."""
    path, all_given = tmp_path / "r.jsonl", threading.Event()
    slow: list[Future] = []

    def late(text, golds):
        future = Future()
        slow.append(future)
        if len(slow) == 1:
            waiter = threading.Thread(
                target=lambda: future.set_result(Verdict(int(all_given.wait(30)), "late", 0.0))
            )
            waiter.start()
        else:
            future.set_result(Verdict(0, "", 0.0))
        if len(slow) == 3 * K:
            all_given.set()
        return future

    result = m.evaluate(QUESTIONS[:3], K, make_sampler(), late, path, {}, chunk=3)
    assert result.correct_QK.sum() == 1


def test_the_projects_own_grader_fits(tmp_path, whole):
    with Grader('math(think="none")', workers=1) as grader:
        path = tmp_path / "r.jsonl"
        result = m.evaluate(QUESTIONS, K, make_sampler(), grader.submit, path, {}, chunk=3)
    assert same(result, whole)


def test_progress_counts_to_the_end(tmp_path):
    seen = []
    run(
        tmp_path / "r.jsonl",
        make_sampler(),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i, 40) for i in range(1, 41)]


def test_another_evaluation_in_the_file_is_refused_by_what_differs(tmp_path):
    path = tmp_path / "r.jsonl"
    run(path, make_sampler())
    with pytest.raises(ValueError, match="model is 'toy' there and 'other' here"):
        m.evaluate(QUESTIONS, K, make_sampler(), grade, path, {"model": "other"})
    with pytest.raises(ValueError, match="k is 4 there and 5 here"):
        m.evaluate(QUESTIONS, 5, make_sampler(), grade, path, {"model": "toy"})
    with pytest.raises(ValueError, match="questions is"):
        m.evaluate(QUESTIONS[:3], K, make_sampler(), grade, path, {"model": "toy"})


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    run(path, make_sampler())
    lines = path.read_text().splitlines()
    lines[4] = lines[4][:-5]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="r.jsonl:5: not a line"):
        run(path, make_sampler())


def test_summary_agrees_with_the_arrays(whole):
    numbers = whole.summary()
    assert numbers["pass@1"] == pytest.approx(whole.correct_QK.mean())
    assert numbers["pass@4"] == pytest.approx(whole.correct_QK.any(1).mean())
    assert numbers["pass@1"] <= numbers["pass@2"] <= numbers["pass@4"]
    assert numbers["pass@1_low"] <= numbers["pass@1"] <= numbers["pass@1_high"]
    assert numbers["truncated"] == pytest.approx((~whole.ended_QK).mean())
    assert numbers["length_mean"] == pytest.approx(whole.length_QK.mean())
    assert "maj@4" in numbers and json.dumps(numbers)


def test_regrading_samples_nothing_and_counts_what_changed(tmp_path, whole):
    path = tmp_path / "r.jsonl"
    run(path, make_sampler())
    right, wrong = int(whole.correct_QK.sum()), int((~whole.correct_QK).sum())
    assert m.regrade(path, QUESTIONS, grade) == (0, 0)
    assert m.regrade(path, QUESTIONS, lambda text, golds: verdict(False)) == (0, right)
    assert not m.saved(path, QUESTIONS).correct_QK.any()
    assert m.regrade(path, QUESTIONS, lambda text, golds: verdict(True)) == (right + wrong, 0)
    m.regrade(path, QUESTIONS, grade)
    assert same(m.saved(path, QUESTIONS), whole)
    with pytest.raises(ValueError, match="not among"):
        m.regrade(path, QUESTIONS[1:], grade)


def test_success_rates_name_the_questions(tmp_path, whole):
    run(tmp_path / "r.jsonl", make_sampler())
    rates = responses.success_rates(tmp_path / "r.jsonl")
    assert [rates[q.id] for q in QUESTIONS] == pytest.approx(whole.correct_QK.mean(1).tolist())


def test_a_sampler_that_forgets_or_invents_is_found_out(tmp_path):
    def forgetful(questions, indices, k, finish):
        for index in indices:
            finish(m.Sampled(index, 0, "", 1, True))

    def inventive(questions, indices, k, finish):
        finish(m.Sampled(99, 0, "", 1, True))

    with pytest.raises(ValueError, match="9 responses too few"):
        run(tmp_path / "a.jsonl", forgetful)
    with pytest.raises(ValueError, match="question 99"):
        run(tmp_path / "b.jsonl", inventive)


def test_two_runs_are_compared_question_by_question(whole):
    assert m.paired(whole, whole).difference == 0
    with pytest.raises(ValueError, match="same questions"):
        m.paired(whole, m.Evaluation((), *[whole.correct_QK] * 3, ()))


def test_best_step_is_the_earliest_of_the_highest():
    assert m.best_step({10: 0.2, 20: 0.5, 30: 0.5}) == 20
    with pytest.raises(ValueError, match="no step"):
        m.best_step({})
