"""The loss over every row of the table: against loops, under padding, permutation and extremes."""

import functools

import by_loops
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import loss, make_objective
from disco_jax.types import Batch

Q, N, T = 4, 5, 6
VALUE_AND_GRAD = jax.jit(
    jax.value_and_grad(loss, argnums=1, has_aux=True),
    static_argnums=0,
    compiler_options={"xla_backend_optimization_level": 0},
)


@functools.cache  # an objective is a static argument: the same one is compiled once
def _objective(name, questions):
    return make_objective(**METHODS[name], questions=questions)


def objective(name, questions="all"):
    return _objective(name, questions)


def minibatch(seed, dtype=np.float64, spread=0.3, drift=0.01):
    """Random log-probabilities and rewards in groups of 0 to N responses of 1 to T tokens.

    Question 0 is mixed, question 1 all right, question 2 all wrong; what is padding is nan.
    `drift` sets KL(old || new), which the hinge compares with 1e-4.
    """
    rng = np.random.default_rng(seed)
    length_QN = rng.integers(1, T + 1, (Q, N))
    size_Q = np.array([rng.integers(2, N + 1), *rng.integers(0, N + 1, Q - 1)])
    length_QN[np.arange(N) >= size_Q[:, None]] = 0
    mask_QNT = np.arange(T) < length_QN[..., None]
    reward_QN = rng.integers(0, 2, (Q, N)).astype(dtype)
    reward_QN[0, :2], reward_QN[1], reward_QN[2] = (1, 0), 1, 0

    def logps(centre, noise):
        x_QNT = centre + noise * rng.normal(size=(Q, N, T))
        return np.where(mask_QNT, x_QNT, np.nan).astype(dtype)

    logp_QNT = logps(-1.5, 0.7)
    old_QNT, ref_QNT = logps(logp_QNT + drift, spread), logps(logp_QNT, spread)
    reward_QN = np.where(mask_QNT.any(-1), reward_QN, np.nan).astype(dtype)
    entropy_QNT = np.where(mask_QNT, rng.uniform(0, 2, (Q, N, T)), np.nan).astype(dtype)
    return logp_QNT, Batch(mask_QNT, reward_QN, old_QNT, ref_QNT), entropy_QNT


@pytest.mark.parametrize(
    ("name", "questions"),
    [(name, "all") for name in METHODS] + [("disco_logl", "valid"), ("dapo", "sized")],
)
def test_every_row_is_what_its_equations_say_in_loops(name, questions, float64):
    for seed in range(10):
        given = minibatch(seed)
        (value, _), _ = VALUE_AND_GRAD(objective(name, questions), *given)
        expected = by_loops.loss(name, *given, questions)
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("name", METHODS)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), extreme=st.sampled_from([0.3, 30.0, 3e3]))
@hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
def test_gradient_is_finite_exact_under_padding_and_follows_permutations(name, seed, extreme):
    logp_QNT, batch, entropy_QNT = minibatch(seed, np.float32, spread=extreme)
    (value, _), gradient_QNT = VALUE_AND_GRAD(objective(name), logp_QNT, batch, entropy_QNT)
    assert np.isfinite(value)
    assert np.isfinite(gradient_QNT).all()
    assert not np.asarray(gradient_QNT)[~batch.mask_QNT].any()

    def other_padding(x):
        mask = batch.mask_QNT if x.ndim == 3 else batch.mask_QNT.any(-1)
        return np.where(mask, x, np.inf).astype(x.dtype)

    filled = Batch(batch.mask_QNT, *map(other_padding, batch[1:]))
    (again, _), gradient_again_QNT = VALUE_AND_GRAD(
        objective(name), other_padding(logp_QNT), filled, other_padding(entropy_QNT)
    )
    assert again == value
    np.testing.assert_array_equal(gradient_again_QNT, gradient_QNT)

    rng = np.random.default_rng(seed)
    questions, rows = rng.permutation(Q), rng.permutation(N)
    moved = [x[questions][:, rows] for x in (logp_QNT, *batch, entropy_QNT)]
    (value_moved, _), gradient_moved_QNT = VALUE_AND_GRAD(
        objective(name), moved[0], Batch(*moved[1:5]), moved[5]
    )
    scale = 1 + np.abs(gradient_QNT).max()
    np.testing.assert_allclose(value_moved, value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        np.asarray(gradient_moved_QNT) / scale,
        np.asarray(gradient_QNT)[questions][:, rows] / scale,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", METHODS)
def test_questions_without_comparison_push_nothing(name, float64):
    """All right or all wrong: only the penalty and the entropy act, if the row has any."""
    logp_QNT, batch, entropy_QNT = minibatch(0)
    bare = make_objective(**METHODS[name] | {"penalty": "none", "entropy": 0.0})
    for reward in (0.0, 1.0):
        alike = batch._replace(reward_QN=np.full((Q, N), reward))
        (value, metrics), gradient_QNT = VALUE_AND_GRAD(bare, logp_QNT, alike, entropy_QNT)
        assert value == 0
        assert not np.asarray(gradient_QNT).any()
        assert metrics["questions/valid"].value == 0
        assert metrics["questions/all_right"].value == reward
        assert metrics["questions/all_wrong"].value == 1 - reward


def test_one_response_per_question_is_no_comparison():
    logp_Q11 = np.full((2, 1, 1), -1.0, np.float32)
    batch = Batch(
        np.ones((2, 1, 1), bool), np.array([[1.0], [0.0]], np.float32), logp_Q11, logp_Q11
    )
    for weight in ("std(ddof=1, eps=1e-6)", "one"):
        made = make_objective(**METHODS["grpo"] | {"weight": weight, "penalty": "none"})
        (value, _), gradient = VALUE_AND_GRAD(made, logp_Q11, batch)
        assert value == 0
        assert not np.asarray(gradient).any()


def test_nothing_at_all_is_zero():
    """A minibatch that is padding throughout, as a process without work may hold."""
    nan = np.full((Q, N, T), np.nan, np.float32)
    batch = Batch(np.zeros((Q, N, T), bool), nan[..., 0], nan, nan)
    for name in METHODS:
        (value, metrics), gradient = VALUE_AND_GRAD(objective(name), nan, batch, nan)
        assert value == 0
        assert not np.asarray(gradient).any()
        assert metrics["reward/mean"].count == 0


def test_metrics_of_two_minibatches_merge_into_those_of_both(float64):
    logp_QNT, batch, entropy_QNT = minibatch(3)
    for name, questions in (("disco_logl", "valid"), ("grpo_er", "all"), ("dapo", "sized")):

        def metrics(*chosen, made=objective(name, questions)):  # noqa: B008
            inside_Q11 = np.isin(np.arange(Q), chosen)[:, None, None]
            part = batch._replace(mask_QNT=batch.mask_QNT & inside_Q11)
            return VALUE_AND_GRAD(made, logp_QNT, part, entropy_QNT)[0][1]

        whole, first, second = metrics(0, 1, 2, 3), metrics(0, 1, 2), metrics(3)
        for key in whole:
            merged = first[key].merge(second[key])
            if key in ("objective/loss", "penalty/value", "kl/over_delta"):  # one per minibatch
                assert merged.count == 2
            else:
                np.testing.assert_allclose(merged.sum, whole[key].sum, rtol=1e-12)
                np.testing.assert_allclose(merged.count, whole[key].count, rtol=1e-12)


def test_what_is_logged_is_what_is_optimised(float64):
    given = minibatch(1, drift=0.05)
    for name in METHODS:
        (value, metrics), _ = VALUE_AND_GRAD(objective(name), *given)
        m = {key: mean.value for key, mean in metrics.items()}
        entropy = METHODS[name]["entropy"] * m["entropy/mean"]
        assert value == m["objective/loss"]
        np.testing.assert_allclose(
            value, m["penalty/value"] - m["objective/value"] - entropy, rtol=1e-12
        )
        assert ("kl/over_delta" in m) == name.startswith("disco")
        if name.startswith("disco"):
            assert m["kl/over_delta"] == 1
            np.testing.assert_allclose(
                m["penalty/value"], 1e3 * (m["kl/mean"] - 1e-4) ** 2, rtol=1e-9
            )


def test_float32_stays_float32_under_x64(float64):
    given = minibatch(2, np.float32)
    for name in ("grpo", "disco_lratio"):
        (value, metrics), gradient = VALUE_AND_GRAD(objective(name), *given)
        assert value.dtype == gradient.dtype == jnp.float32
        assert all(x.dtype == jnp.float32 for mean in metrics.values() for x in mean)


def test_missing_log_probabilities_are_named():
    logp_QNT, batch, _ = minibatch(0, np.float32)
    cases = {
        "grpo": (batch._replace(logp_ref_QNT=None), "logp_ref_QNT"),
        "trpa": (batch._replace(logp_ref_QNT=None), "logp_ref_QNT"),
        "disco_b_lratio": (batch._replace(logp_old_QNT=None), "logp_old_QNT"),
        "disco_logl": (batch._replace(logp_old_QNT=None), "logp_old_QNT"),
        "grpo_er": (batch, "entropy_QNT"),
    }
    for name, (lacking, what) in cases.items():
        with pytest.raises(ValueError, match=what):
            loss(objective(name), logp_QNT, lacking)
    without = batch._replace(logp_old_QNT=None, logp_ref_QNT=None)
    assert np.isfinite(loss(objective("gpg"), logp_QNT, without)[0])


def test_a_runaway_token_is_pulled_back():
    """Ratios of e^80 are past float32's reach once squared; the gradient must keep its sign."""
    old = np.full((1, 2, 2), -81.0, np.float32)
    new = np.full((1, 2, 2), -1.0, np.float32)
    batch = Batch(np.ones((1, 2, 2), bool), np.array([[1.0, 0.0]], np.float32), old, old)
    for surrogate in ("gap", "logistic", "squared_hinge", "dro(tau=0.01)"):
        parts = METHODS["disco_b_lratio"] | {"surrogate": surrogate, "penalty": "none"}
        (value, _), gradient = VALUE_AND_GRAD(make_objective(**parts), new, batch)
        assert np.isfinite(value)
        assert (np.asarray(gradient)[0, 0] < 0).all()  # the right response is raised,
        assert (np.asarray(gradient)[0, 1] > 0).all()  # the wrong one lowered
    for estimator in ("k2", "k3"):
        penalty = f"kl_old(beta=1.0, estimator='{estimator}')"
        made = make_objective(**METHODS["gpg"] | {"penalty": penalty, "weight": "var(alpha=1e-9)"})
        (value, _), gradient = VALUE_AND_GRAD(made, new, batch)
        assert np.isfinite(value)
        assert (np.asarray(gradient) > 0).all()  # minimising lowers pi towards pi_old
