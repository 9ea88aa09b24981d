"""The paper's statements as tests: one per equation, each against numbers worked out here."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.objective import scores, surrogates, weights
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import loss, make_objective
from disco_jax.types import Batch

Q, N, T = 6, 8, 5
LOSS = jax.jit(
    jax.value_and_grad(loss, argnums=1, has_aux=True),
    static_argnums=0,
    compiler_options={"xla_backend_optimization_level": 0},
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module")
def data():
    """Six questions with 1 to 7 right responses of 8, of random lengths."""
    rng = np.random.default_rng(0)
    mask_QNT = np.arange(T) < rng.integers(1, T + 1, (Q, N))[..., None]
    reward_QN = (np.arange(N) < np.array([1, 2, 4, 5, 6, 7])[:, None]).astype(float)
    logp_QNT = rng.normal(-1.2, 0.5, (Q, N, T))
    old_QNT = logp_QNT + rng.normal(0.01, 0.3, (Q, N, T))
    ref_QNT = logp_QNT + rng.normal(0, 0.2, (Q, N, T))
    return logp_QNT, Batch(mask_QNT, reward_QN, old_QNT, ref_QNT)


@functools.cache  # an objective is a static argument: the same one is compiled once
def made(name, **change):
    return make_objective(**METHODS[name] | change)


def objective_value(name, data, **change):
    return -float(LOSS(made(name, **{"penalty": "none"} | change), *data)[0][0])


def scored(surrogate, s_N, right_N):
    s_QN = jnp.asarray([s_N])
    reward_QN = jnp.asarray([right_N], s_QN.dtype)
    return float(surrogate.value(s_QN, s_QN, reward_QN, jnp.ones_like(reward_QN, bool))[0][0])


def test_eq_1_total_expectation(data):
    """E g = p E+ g + (1 - p) E- g, on which the whole analysis rests, for our S+ and S-."""
    logp_QNT, batch = data
    g_QN = np.where(batch.mask_QNT, logp_QNT, 0).sum(-1)
    right_QN, wrong_QN, _ = map(
        np.asarray, surrogates.split(batch.reward_QN, np.ones((Q, N), bool))
    )
    for q in range(Q):
        p = right_QN[q].mean()
        parts = p * g_QN[q][right_QN[q]].mean() + (1 - p) * g_QN[q][wrong_QN[q]].mean()
        assert g_QN[q].mean() == pytest.approx(parts)


def test_eq_5_is_eq_2s_f():
    """min(xy, clip(x) y) is y f+(x) for y > 0 and -|y| f-(x) for y <= 0."""
    x_QNT = np.linspace(0.01, 3, 200).reshape(1, 1, 200)
    batch = Batch(None, None, np.zeros_like(x_QNT))
    plus, minus = scores.clipped_ratio(low=0.2, high=0.28).tokens(np.log(x_QNT), batch)
    for y in (1.7, -0.6):
        f = np.minimum(x_QNT * y, np.clip(x_QNT, 0.8, 1.28) * y)
        np.testing.assert_allclose(y * (plus if y > 0 else minus), f, rtol=1e-12)


def advantages(reward_QN, normalised):
    p_Q1 = reward_QN.mean(-1, keepdims=True)
    return (reward_QN - p_Q1) / (np.sqrt(p_Q1 * (1 - p_Q1)) if normalised else 1)


def test_eq_12_and_18_advantages_are_weights_over_shares(data):
    reward_QN = data[1].reward_QN
    p_Q, n_Q = reward_QN.mean(-1), np.full(Q, float(N))
    for weight, normalised in ((weights.std(), True), (weights.var(), False)):
        w_Q1 = np.asarray(weight(p_Q, n_Q))[:, None]
        ours = np.where(reward_QN > 0, w_Q1 / p_Q[:, None], -w_Q1 / (1 - p_Q[:, None]))
        np.testing.assert_allclose(ours, advantages(reward_QN, normalised), rtol=1e-12)


ADVANTAGE_FORMS = {  # row: normalised advantage, token function of (x, A, logp), length, change
    "eqs. 3-4, GRPO": ("grpo", True, (0.2, 0.2), "own", {}),
    "eq. 15, TRPO": ("grpo", True, "ratio", "own", {"score": "l_ratio"}),
    "eq. 17, VPG": ("grpo", True, "logp", "own", {"score": "log_l"}),
    "eq. 19, Dr. GRPO": ("dr_grpo", False, (0.2, 0.2), "sum", {}),
    "eq. 20, DAPO": ("dapo", True, (0.2, 0.28), "group", {}),
    "eq. 21, GPG": ("gpg", False, "logp", "group", {"weight": "var(alpha=1.5)"}),
    "DAPO's own token mean": ("dapo", True, (0.2, 0.28), "batch", {"length": "batch"}),
}


@pytest.mark.parametrize("form", ADVANTAGE_FORMS)
def test_proposition_1_and_b_3(form, data):
    """The advantage form of each method, as its own paper has it, is our row of Table 6."""
    name, normalised, token, length, change = ADVANTAGE_FORMS[form]
    logp_QNT, batch = data
    mask_QNT, reward_QN = batch.mask_QNT, batch.reward_QN
    a_QN1 = advantages(reward_QN, normalised)[..., None] * (1.5 if form.endswith("GPG") else 1)
    x_QNT = np.exp(logp_QNT - batch.logp_old_QNT)
    if token == "logp":
        f_QNT = logp_QNT * a_QN1
    elif token == "ratio":
        f_QNT = x_QNT * a_QN1
    else:
        f_QNT = np.minimum(x_QNT * a_QN1, np.clip(x_QNT, 1 - token[0], 1 + token[1]) * a_QN1)
    o_QN = mask_QNT.sum(-1)
    divisor = {
        "own": o_QN,
        "sum": 1,
        "group": o_QN.mean(-1, keepdims=True),
        "batch": o_QN.mean(),
    }[length]
    expected = (np.where(mask_QNT, f_QNT, 0).sum(-1) / divisor).mean()
    assert objective_value(name, data, **change) == pytest.approx(expected, rel=1e-12)


def test_eq_6_is_grpo_without_its_weight(data):
    """Dividing each question of GRPO by sqrt(p(1-p)) gives GRPO_RW."""
    logp_QNT, batch = data
    total = 0.0
    for q in range(Q):
        one = logp_QNT[q : q + 1], Batch(*(x[q : q + 1] for x in batch))
        p = batch.reward_QN[q].mean()
        total += objective_value("grpo", one) / math.sqrt(p * (1 - p)) / Q
    assert objective_value("grpo_rw", data) == pytest.approx(total, rel=1e-12)


def test_eq_10_is_the_worst_reweighting_of_the_negatives():
    """inf_Q tau KL(Q, uniform) + E_Q[s+ - s-], attained at Q ~ exp(s- / tau)."""
    rng = np.random.default_rng(1)
    s_plus, s_minus, tau = 0.3, rng.normal(size=6), 0.7

    def robust(q):
        return tau * (q * np.log(q * 6)).sum() + (q * (s_plus - s_minus)).sum()

    worst = np.exp(s_minus / tau) / np.exp(s_minus / tau).sum()
    j2 = scored(surrogates.dro(tau), [s_plus, *s_minus], [1] + [0] * 6)
    assert j2 == pytest.approx(robust(worst), rel=1e-12)
    assert all(robust(q) > j2 for q in rng.dirichlet(np.ones(6), size=100))


def test_j2_is_at_most_j1_and_joins_it_and_the_hardest_negative(data):
    right = [1, 1, 0, 0, 0]
    s = [0.1, 0.5, 0.9, -0.3, 0.2]
    taus = (1e-3, 0.01, 0.5, 1, 5, 10, 1e6)
    j2 = [scored(surrogates.dro(tau), s, right) for tau in taus]
    j1 = scored(surrogates.gap(), s, right)
    assert all(a < b for a, b in zip(j2, [*j2[1:], j1], strict=True))  # rises with tau, below J1
    assert j2[-1] == pytest.approx(j1, abs=1e-6)
    assert j2[0] == pytest.approx(0.3 - 0.9, abs=2e-3)  # mean s+ minus the greatest s-
    for row, basic in (("disco_logl", "disco_b_logl"), ("disco_lratio", "disco_b_lratio")):
        assert objective_value(row, data) < objective_value(basic, data)


def test_tau_to_infinity_holds_in_float32_too(data):
    with jax.enable_x64(False):
        small = [np.asarray(x, np.float32) for x in (data[0], *data[1][1:])]
        one = small[0], Batch(data[1].mask_QNT, *small[1:])
        (_, _), wide = LOSS(made("disco_logl", surrogate="dro(tau=1e5)"), *one)
        (_, _), flat = LOSS(made("disco_b_logl"), *one)
    np.testing.assert_allclose(wide, flat, rtol=1e-4, atol=1e-6)


def test_the_example_of_section_5_2():
    """One right answer at 0.5, one wrong at 0.9 and 99 at 0.001: AUC 0.99, and yet it is wrong."""
    s, right = [0.5, 0.9] + [0.001] * 99, [1] + [0] * 100
    assert np.mean([0.5 > x for x in s[1:]]) == 0.99
    assert scored(surrogates.gap(), s, right) == pytest.approx(0.5 - (0.9 + 99 * 0.001) / 100)
    assert scored(surrogates.gap(), s, right) > 0.49  # J1 is content,
    assert scored(surrogates.dro(0.01), s, right) < -0.35  # J2 is not,

    def pull(surrogate):  # and puts its whole force on the one that leads
        def value(s_N):
            row = jnp.ones((1, 101), bool)
            reward = jnp.asarray([right], s_N.dtype)
            return surrogate.value(s_N[None], s_N[None], reward, row)[0][0]

        return -jax.grad(value)(jnp.asarray(s))[1]

    assert pull(surrogates.gap()) == pytest.approx(0.01)
    assert pull(surrogates.dro(0.01)) == pytest.approx(1.0)
    assert pull(surrogates.dro(0.1)) == pytest.approx(1 / (1 + 99 * math.exp(-8.99)), rel=1e-9)


@pytest.mark.parametrize("factor", [2, 1])
def test_eq_9_the_hinges_gradient(factor, data):
    """factor * beta [KL - delta]_+ grad KL outside the trust region, exactly nothing inside."""
    logp_QNT, batch = data
    penalty = f"squared_hinge(beta=1e3, delta=1e-4, factor={factor})"
    bare, held = made("disco_b_logl", penalty="none"), made("disco_b_logl", penalty=penalty)
    count = batch.mask_QNT.sum()
    for kl in (-3e-4, 0.5e-4, 2e-4, 5e-3):
        off = (batch.logp_old_QNT - logp_QNT)[batch.mask_QNT].mean() - kl
        shifted = batch._replace(logp_old_QNT=batch.logp_old_QNT - off)
        (value, metrics), gradient_QNT = LOSS(held, logp_QNT, shifted)
        (free, _), free_QNT = LOSS(bare, logp_QNT, shifted)
        over = max(kl - 1e-4, 0)
        force_QNT = np.where(batch.mask_QNT, factor * 1e3 * over * (-1 / count), 0)
        np.testing.assert_allclose(gradient_QNT - free_QNT, force_QNT, rtol=1e-8, atol=1e-15)
        assert value - free == pytest.approx(factor / 2 * 1e3 * over**2, rel=1e-8, abs=1e-15)
        assert metrics["kl/mean"].value == pytest.approx(kl, rel=1e-9)
        assert metrics["kl/over_delta"].value == (over > 0)
        if not over:
            np.testing.assert_array_equal(gradient_QNT, free_QNT)


def test_algorithm_1_line_9(data):
    """The sum inside the log lowers the value by tau log |S-| and leaves the gradient alone."""
    (mean, _), mean_QNT = LOSS(made("disco_logl"), *data)
    (total, _), total_QNT = LOSS(
        made("disco_logl", surrogate="dro(tau=10, negatives='sum')"), *data
    )
    negatives_Q = N - data[1].reward_QN.sum(-1)
    assert total - mean == pytest.approx(10 * np.log(negatives_Q).mean(), rel=1e-12)  # losses
    np.testing.assert_allclose(total_QNT, mean_QNT, rtol=1e-12)


def test_table_6_trpa(data):
    """log sigmoid(beta (S+ - S-)) over pairs, S the sum of log pi / pi_ref."""
    logp_QNT, batch = data
    s_QN = np.where(batch.mask_QNT, logp_QNT - batch.logp_ref_QNT, 0).sum(-1)
    terms = []
    for q in range(Q):
        right = batch.reward_QN[q] > 0
        gaps = 0.1 * (s_QN[q][right][:, None] - s_QN[q][~right][None, :])
        terms.append(-np.log1p(np.exp(-gaps)).mean())
    assert objective_value("trpa", data) == pytest.approx(np.mean(terms), rel=1e-12)


def test_why_a_hinge_is_not_taken_per_micro_batch(data):
    """Averaging micro-batch hinges overstates the constraint (max(., 0) is convex): one minibatch
    inside the trust region, split in two halves, would be pushed."""
    logp_QNT, batch = data
    halves = np.where(np.arange(Q) < Q // 2, 1, -1)[:, None, None]
    old_QNT = logp_QNT + 3e-4 * halves
    count = batch.mask_QNT.sum((1, 2))
    old_QNT -= (3e-4 * halves[:, 0, 0] * count).sum() / count.sum()
    held = made("disco_b_logl")
    whole = LOSS(held, logp_QNT, batch._replace(logp_old_QNT=old_QNT))[0][1]
    assert whole["penalty/value"].value == 0
    rows = slice(0, Q // 2)
    part = Batch(*(x[rows] for x in batch._replace(logp_old_QNT=old_QNT)))
    assert LOSS(held, logp_QNT[rows], part)[0][1]["penalty/value"].value > 0
