"""The parts one by one, and what is refused when an objective is built."""

import ast
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.objective import masked, methods, penalties, surrogates, weights
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.types import Batch

ROW = METHODS["disco_logl"]
RATIOS = ("l_ratio", "clipped_ratio(low=0.2, high=0.28)")
OLD = ("kl_old(beta=1)", "squared_hinge")


def value(surrogate, scores, rewards):
    """D of one question, and whether it is valid."""
    s_QN, r_QN = jnp.asarray([scores]), jnp.asarray([rewards])
    d_Q, valid_Q = surrogate.value(s_QN, s_QN, r_QN, jnp.ones_like(r_QN, bool))
    return float(d_Q[0]), bool(valid_Q[0])


def test_the_table_has_the_rows_of_the_paper():
    assert list(METHODS) == [
        *("grpo", "grpo_er", "grpo_rw", "dr_grpo", "dapo", "gpg", "trpa"),
        *("disco_b_logl", "disco_b_lratio", "disco_logl", "disco_lratio"),
    ]
    for name, row in METHODS.items():
        assert set(row) == {"weight", "score", "length", "surrogate", "penalty", "entropy"}, name


def test_the_table_imports_nothing():
    tree = ast.parse(pathlib.Path(methods.__file__).read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_table_1():
    """Difficulty bias, clipping, kind of KL divergence, as the paper's Table 1 has them."""
    table = {
        "grpo": (True, True, "ref", None),
        "dr_grpo": (True, True, None, None),
        "dapo": (True, True, None, None),
        "gpg": (True, False, None, None),
        "trpa": (False, False, "old", None),
        "disco_logl": (False, False, "old", 1e-4),
        "disco_lratio": (False, False, "old", 1e-4),
    }
    for name, (biased, clipped, kl, delta) in table.items():
        made = make_objective(**METHODS[name])
        w = made.weight(jnp.asarray([0.1, 0.5]), jnp.asarray([10.0, 10.0]))
        assert (float(w[0]) != float(w[1])) == biased, name
        assert made.score.two_sided == clipped, name
        assert made.penalty.needs_ref == (kl == "ref"), name
        assert made.penalty.needs_old == (kl == "old"), name
        assert made.delta == delta, name


def test_reference_log_probabilities_are_asked_for_only_by_rows_that_use_them():
    needing = {name for name, row in METHODS.items() if make_objective(**row).needs_ref}
    assert needing == {"grpo", "grpo_er", "grpo_rw", "trpa"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"surrogate": "drow(tau=1)"}, "did you mean 'dro'"),
        ({"surrogate": "dro"}, r"the parameter 'tau' is missing.*dro\(tau"),
        ({"surrogate": "dro(tau=1, tua=1)"}, "no parameter 'tua'"),
        ({"surrogate": "dro(tau=0)"}, "tau=0 must be a number above 0"),
        ({"surrogate": "dro(tau=True)"}, "tau=True must be a number"),
        ({"surrogate": "dro(tau='1')"}, "tau='1' must be a number"),
        ({"surrogate": "dro(tau=1e999)"}, "tau=inf must be a number"),
        ({"surrogate": "dro(tau=1, negatives='max')"}, "one of 'mean', 'sum'"),
        ({"surrogate": "gap(graded=1)"}, "graded=1 must be one of False, True"),
        ({"surrogate": "squared_hinge(margin=-1)"}, "at least 0"),
        ({"surrogate": "__import__('os')"}, "surrogate|not a name or a call"),
        ({"score": "clipped_ratio(low=0.2)"}, "the parameter 'high' is missing"),
        (
            {"score": "clipped_ratio(low=1.0, high=0.2)"},
            "low=1.0 must be a number above 0 and below 1",
        ),
        ({"score": "logl"}, "did you mean 'log_l'"),
        ({"weight": "std(ddof=2)"}, "ddof=2 must be one of 0, 1"),
        ({"length": "constant"}, "the parameter 'tokens' is missing"),
        ({"penalty": "kl_ref(beta=1e-3, estimator='k4')"}, "one of 'k1', 'k2', 'k3'"),
        ({"penalty": "kl_old(beta=-1)"}, "beta=-1 must be a number at least 0"),
        ({"penalty": "squared_hinge(delta=None)"}, "delta=None must be a number"),
        ({"entropy": -0.1}, "entropy=-0.1 must be a number at least 0"),
        ({"entropy": math.nan}, "entropy=nan must be a number"),
        ({"questions": "some"}, "one of 'all', 'valid', 'sized'"),
        (
            {"surrogate": "listnet", "score": "clipped_ratio(low=0.2, high=0.2)"},
            "one score per response",
        ),
        ({"surrogate": "listnet", "weight": "std"}, "take weight='one'"),
        ({"surrogate": "gap(graded=True)", "weight": "var"}, "take weight='one'"),
    ],
)
def test_what_makes_no_sense_fails_when_it_is_built(change, says):
    with pytest.raises(ValueError, match=says):
        make_objective(**ROW | change)


@pytest.mark.parametrize("slot", ["weight", "score", "length", "surrogate", "penalty", "entropy"])
def test_no_part_may_be_left_out(slot):
    with pytest.raises(TypeError, match=slot):
        make_objective(**{key: part for key, part in ROW.items() if key != slot})


def test_every_combination_that_is_not_refused_builds_and_is_hashable():
    count = 0
    for score in ("log_l", "l_ratio", "log_ratio_ref", "clipped_ratio(low=0.2, high=0.28)"):
        for surrogate in ("gap", "logistic", "squared_hinge", "dro(tau=1)", "listnet"):
            for penalty in ("none", "kl_ref(beta=1)", "kl_old(beta=1)", "squared_hinge"):
                parts = ROW | {"score": score, "surrogate": surrogate, "penalty": penalty}
                if surrogate == "listnet" and score.startswith("clipped"):
                    continue
                made = make_objective(**parts)
                assert hash(made) == hash(made)
                assert made.needs_old == (score in RATIOS or penalty in OLD), parts
                count += 1
    assert count == 76


def test_weights_of_figure_1a():
    p_Q, n_Q = jnp.asarray([0.0, 0.1, 0.5, 0.9, 1.0]), jnp.full(5, 10.0)
    np.testing.assert_allclose(weights.one()(p_Q, n_Q), 1)
    np.testing.assert_allclose(weights.std()(p_Q, n_Q), [0, 0.3, 0.5, 0.3, 0], rtol=1e-6)
    np.testing.assert_allclose(weights.var(alpha=2)(p_Q, n_Q), [0, 0.18, 0.5, 0.18, 0], rtol=1e-6)
    sample = weights.std(ddof=1)(p_Q, n_Q)
    np.testing.assert_allclose(sample, weights.std()(p_Q, n_Q) * math.sqrt(0.9), rtol=1e-6)


def test_estimators_of_a_divergence_that_is_known(float64):
    """Tokens in their exact proportions under a categorical policy: k1 and k3 give the KL."""
    old, new = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    tokens = np.repeat([0, 1, 2], [5, 3, 2])
    shape = (1, 1, 10)
    new_QNT = jnp.log(new[tokens]).reshape(shape)
    batch = Batch(jnp.ones(shape, bool), None, jnp.log(old[tokens]).reshape(shape), None)
    exact = float((old * np.log(old / new)).sum())
    for estimator in ("k1", "k3"):
        kl = penalties.kl_old(beta=1, estimator=estimator).kl(new_QNT, batch)
        np.testing.assert_allclose(kl, exact, rtol=1e-12)
    gap = np.log(old / new)
    k2 = penalties.kl_old(beta=1, estimator="k2").kl(new_QNT, batch)
    np.testing.assert_allclose(k2, (old * gap**2).sum() / 2, rtol=1e-12)
    reverse = penalties.kl_ref(beta=1, estimator="k1").kl(  # tokens now are from the policy
        batch.logp_old_QNT, Batch(batch.mask_QNT, None, None, new_QNT)
    )
    np.testing.assert_allclose(reverse, exact, rtol=1e-12)


def test_mean_over_responses_counts_each_response_once(float64):
    mask = np.array([[[True] * 4, [True, False, False, False]]])
    ref, new = np.zeros((1, 2, 4)), np.array([[[1.0] * 4, [3.0] * 4]])
    batch = Batch(mask, None, None, ref)
    by_token = penalties.kl_ref(beta=1, estimator="k1").kl(new, batch)
    by_response = penalties.kl_ref(beta=1, estimator="k1", mean="responses").kl(new, batch)
    assert float(by_token) == pytest.approx((4 * 1 + 3) / 5)
    assert float(by_response) == pytest.approx((1 + 3) / 2)


def test_graded_pairs_agree_with_binary_ones_on_binary_rewards(float64):
    scores, rewards = [0.3, -0.7, 1.1, 0.2], [1.0, 0.0, 0.0, 1.0]
    for binary, graded in (
        (surrogates.gap(), surrogates.gap(graded=True)),
        (surrogates.logistic(2.0), surrogates.logistic(2.0, graded=True)),
        (surrogates.squared_hinge(0.5), surrogates.squared_hinge(0.5, graded=True)),
    ):
        assert value(graded, scores, rewards) == value(binary, scores, rewards)


def test_graded_pairs_weigh_by_reward_gap(float64):
    scores, rewards = [1.0, 2.0, 4.0], [0.9, 0.6, 0.1]
    gaps = {(0, 1): 0.3, (0, 2): 0.8, (1, 2): 0.5}
    expected = sum(w * (scores[i] - scores[j]) for (i, j), w in gaps.items()) / sum(gaps.values())
    d, valid = value(surrogates.gap(graded=True), scores, rewards)
    assert valid
    assert d == pytest.approx(expected, rel=1e-12)
    assert value(surrogates.gap(graded=True), scores, [0.4] * 3) == (0.0, False)
    # Binary: 0.9 and 0.6 are right, 0.1 is wrong, however far apart.
    assert value(surrogates.gap(), scores, rewards)[0] == pytest.approx(1.5 - 4.0)


def test_listnet_is_logistic_for_one_right_and_one_wrong(float64):
    for tau in (0.1, 1.0, 10.0):
        ours, _ = value(surrogates.listnet(tau), [0.3, -0.4], [1.0, 0.0])
        theirs, _ = value(surrogates.logistic(beta=1 / tau), [0.3, -0.4], [1.0, 0.0])
        assert ours == pytest.approx(tau * theirs, rel=1e-12)


def test_listnet_with_one_right_is_dro_through_a_sigmoid(float64):
    scores, rewards, tau = [0.3, -0.4, 0.9, 0.1], [1.0, 0.0, 0.0, 0.0], 0.5
    ours, _ = value(surrogates.listnet(tau), scores, rewards)
    inner, _ = value(surrogates.dro(tau, negatives="sum"), scores, rewards)
    assert ours == pytest.approx(-tau * math.log1p(math.exp(-inner / tau)), rel=1e-12)


def test_listnet_is_a_cross_entropy_and_knows_no_unit_of_reward(float64):
    scores, rewards, tau = [0.2, -1.0, 0.7], [0.9, 0.4, 0.1], 2.0
    ours, valid = value(surrogates.listnet(tau), scores, rewards)
    target = np.array([0.8, 0.3, 0.0]) / 1.1
    log_softmax = np.array(scores) / tau - np.log(np.exp(np.array(scores) / tau).sum())
    assert valid
    assert ours == pytest.approx(tau * (target * log_softmax).sum(), rel=1e-12)
    rescaled = [-3 + 10 * r for r in rewards]
    assert value(surrogates.listnet(tau), scores, rescaled)[0] == pytest.approx(ours, rel=1e-9)
    assert value(surrogates.listnet(tau), scores, [0.5] * 3) == (0.0, False)


def test_listnet_pulls_scores_into_the_order_of_rewards(float64):
    surrogate, rewards = surrogates.listnet(), jnp.asarray([[0.1, 0.9, 0.5]])
    row = jnp.ones_like(rewards, bool)
    ascend = jax.jit(jax.grad(lambda s: surrogate.value(s, s, rewards, row)[0].sum()))
    s_QN = jnp.zeros((1, 3))
    for _ in range(50):
        s_QN += 0.5 * ascend(s_QN)
    assert s_QN[0, 1] > s_QN[0, 2] > s_QN[0, 0]


def test_masked_exp_is_exp_and_then_its_tangent():
    x = jnp.asarray([-50.0, 0.0, 19.9, 20.0, 21.0, 1e4])
    y, slope = masked.exp(x), jax.vmap(jax.grad(masked.exp))(x)
    np.testing.assert_allclose(y[:4], jnp.exp(x[:4]), rtol=1e-6)
    np.testing.assert_allclose(y[4], 2 * math.exp(20), rtol=1e-6)
    assert np.isfinite(y).all()
    assert np.isfinite(slope).all()
    assert (np.diff(slope) >= 0).all()  # convex


def test_the_soft_maximum_at_both_ends_of_float32():
    s = np.array([[0.3, -0.2, 0.9, 7.0]], np.float32)
    where = np.array([[True, True, True, False]])
    for tau in (1e4, 1e6):  # tau * log(mean(exp(s / tau))) has lost s here
        np.testing.assert_allclose(masked.soft_maximum(s, where, tau), [1 / 3], rtol=2e-4)
    np.testing.assert_allclose(masked.soft_maximum(s, where, 1e-3), [0.9], atol=2e-3)
    np.testing.assert_allclose(masked.soft_maximum(s * 1e12, where, 1e-3), [0.9e12], rtol=1e-6)
    assert masked.soft_maximum(s, np.zeros_like(where), 1.0)[0] == 0
