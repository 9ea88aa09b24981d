"""Surrogates D(s+, s-): how far a question's right responses score above its wrong ones.

A surrogate maps plus_QN, minus_QN (scores), reward_QN and row_QN (True where there is a response)
to D_Q, to be maximised, and valid_Q, True where there is something to compare; D is 0 elsewhere.
Right means a reward above 0.5. The graded ones use the size of the rewards instead.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from disco_jax import calls
from disco_jax.objective import masked


class Surrogate(NamedTuple):
    value: Callable  # plus_QN, minus_QN, reward_QN, row_QN -> D_Q, valid_Q
    graded: bool = False
    one_sided: bool = False  # needs plus == minus


def split(reward_QN, row_QN):
    """S+ and S- as masks, and the questions that have both."""
    right_QN = row_QN & (reward_QN > 0.5)
    wrong_QN = row_QN & ~right_QN
    return right_QN, wrong_QN, right_QN.any(-1) & wrong_QN.any(-1)


def _pairs(ell, graded):
    """Mean of ell(s+ - s-) over pairs (eq. 7); graded: weighted by the pair's reward gap.

    Every reward being 0 or 1, all gaps are 1 and the two are the same.
    """
    calls.choice("graded", graded, (False, True))

    def value(plus_QN, minus_QN, reward_QN, row_QN):
        grade_QN = reward_QN if graded else split(reward_QN, row_QN)[0].astype(plus_QN.dtype)
        lead_QNN = grade_QN[:, :, None] - grade_QN[:, None, :]
        pair_QNN = (lead_QNN > 0) & row_QN[:, :, None] & row_QN[:, None, :]
        margin_QNN = jnp.where(pair_QNN, plus_QN[:, :, None] - minus_QN[:, None, :], 0)
        valid_Q = pair_QNN.any((1, 2))
        lead_Q = jnp.where(valid_Q, masked.total(lead_QNN, pair_QNN, (1, 2)), 1)
        return masked.total(lead_QNN * ell(margin_QNN), pair_QNN, (1, 2)) / lead_Q, valid_Q

    return Surrogate(value, graded)


def gap(graded=False):
    """ell(s) = s (eq. 4 and all experiments of section 6)."""
    return _pairs(lambda s: s, graded)


def logistic(beta=1.0, graded=False):
    """ell(s) = log sigmoid(beta s): TRPA (Table 6)."""
    beta = calls.number("beta", beta, above=0.0)
    return _pairs(lambda s: jax.nn.log_sigmoid(beta * s), graded)


def squared_hinge(margin=1.0, graded=False):
    """ell(s) = -max(margin - s, 0)^2: no force on pairs that are `margin` apart."""
    margin = calls.number("margin", margin, least=0.0)
    return _pairs(lambda s: -jnp.square(jnp.maximum(margin - s, 0)), graded)


def dro(tau, negatives="mean"):
    """J2 (eq. 10): -tau log E- exp((s- - s+) / tau), averaged over the right responses.

    The wrong responses that score highest weigh most: tau -> 0 leaves the hardest, tau -> inf gives
    `gap`. negatives="sum" is Algorithm 1, line 9: the same gradient, lower by tau log |S-|.
    """
    tau = calls.number("tau", tau, above=0.0)
    calls.choice("negatives", negatives, ("mean", "sum"))

    def value(plus_QN, minus_QN, reward_QN, row_QN):
        right_QN, wrong_QN, valid_Q = split(reward_QN, row_QN)
        hard_Q = masked.soft_maximum(minus_QN, wrong_QN, tau)
        if negatives == "sum":
            hard_Q += tau * jnp.log(jnp.maximum(masked.count(wrong_QN, minus_QN, -1), 1))
        value_Q = masked.mean(plus_QN, right_QN, -1) - hard_Q
        return jnp.where(valid_Q, value_Q, 0), valid_Q

    return Surrogate(value)


def listnet(tau=1.0):
    """ListNet, for graded rewards: tau sum_i P_i log softmax(s / tau)_i, P_i ~ r_i - min r.

    Unlike ListNet's own P = softmax(r), this depends on neither the unit nor the zero of the
    rewards, and is uniform over the right responses where rewards are 0 and 1. Then a question with
    one right response has tau log sigmoid(D / tau), D its dro(tau, negatives="sum"), which for one
    wrong response too is tau * logistic(beta=1/tau).
    Reference: Cao et al. 2007, Learning to rank: from pairwise approach to listwise approach.
    """
    tau = calls.number("tau", tau, above=0.0)

    def value(plus_QN, minus_QN, reward_QN, row_QN):
        low_QN = jnp.min(reward_QN, -1, keepdims=True, where=row_QN, initial=jnp.inf)
        gain_QN = jnp.where(row_QN, reward_QN - low_QN, 0)
        valid_Q = (gain_QN > 0).any(-1)
        aim_Q = (gain_QN * plus_QN).sum(-1) / jnp.where(valid_Q, gain_QN.sum(-1), 1)
        rows_Q = jnp.maximum(masked.count(row_QN, plus_QN, -1), 1)
        all_Q = masked.soft_maximum(plus_QN, row_QN, tau) + tau * jnp.log(rows_Q)
        return jnp.where(valid_Q, aim_Q - all_Q, 0), valid_Q

    return Surrogate(value, graded=True, one_sided=True)


SURROGATES = {f.__name__: f for f in (gap, logistic, squared_hinge, dro, listnet)}
