"""The objective: a pure function of the policy's log-probabilities and the minibatch.

    J = (1 / |B|) sum_q w(p_q) D_q(s+, s-)        loss = -J + penalty - entropy * H

Nothing here knows the model, and the model knows nothing of this: gradients cross between the two
as one [Q, N, T] array.
"""

from typing import NamedTuple

import jax.numpy as jnp

from disco_jax.objective import masked, surrogates
from disco_jax.objective.compose import Objective, make_objective
from disco_jax.types import Array, Batch, Mean, Metrics

__all__ = ["Comparison", "Objective", "compare", "loss", "make_objective", "select"]


class Comparison(NamedTuple):
    plus_QN: Array  # scores, 0 where there is no response
    minus_QN: Array
    value_Q: Array  # w(p) D
    valid_Q: Array  # bool: has something to compare
    count_Q: Array  # how often the question counts in the mean that is J


def select(logp_QNT, batch: Batch):
    """Both with 0 for whatever lies outside the mask, so that no arithmetic ever sees it.

    Selecting only the results would not do: a nan that is not chosen still spoils the gradient.
    """
    mask_QNT = jnp.asarray(batch.mask_QNT, bool)
    reward_QN = jnp.where(mask_QNT.any(-1), batch.reward_QN, 0).astype(logp_QNT.dtype)
    logp_QNT, old_QNT, ref_QNT = (
        None if x_QNT is None else jnp.where(mask_QNT, x_QNT, 0)
        for x_QNT in (logp_QNT, batch.logp_old_QNT, batch.logp_ref_QNT)
    )
    return logp_QNT, Batch(mask_QNT, reward_QN, old_QNT, ref_QNT)


def compare(objective: Objective, logp_QNT, batch: Batch) -> Comparison:
    """Scores every response and compares within every question. Takes what `select` returns."""
    row_QN = batch.mask_QNT.any(-1)
    tokens_QN = masked.count(batch.mask_QNT, logp_QNT, -1)
    length_QN = jnp.where(row_QN, objective.length(tokens_QN), 1)
    plus_QN, minus_QN = (
        masked.total(score_QNT, batch.mask_QNT, -1) / length_QN
        for score_QNT in objective.score.tokens(logp_QNT, batch)
    )
    value_Q, valid_Q = objective.surrogate.value(plus_QN, minus_QN, batch.reward_QN, row_QN)
    right_QN, _, _ = surrogates.split(batch.reward_QN, row_QN)
    n_Q = masked.count(row_QN, logp_QNT, -1)
    p_Q = masked.count(right_QN, logp_QNT, -1) / jnp.maximum(n_Q, 1)
    counted = {"all": row_QN.any(-1), "valid": valid_Q, "sized": n_Q}[objective.questions]
    value_Q = objective.weight(p_Q, n_Q) * value_Q
    return Comparison(plus_QN, minus_QN, value_Q, valid_Q, counted.astype(logp_QNT.dtype))


def loss(objective: Objective, logp_QNT, batch: Batch, entropy_QNT=None) -> tuple[Array, Metrics]:
    """The scalar to minimise over a whole minibatch, and the metrics it is made of.

    Every statistic is of the minibatch as a whole, above all the KL divergence inside the hinge
    (Algorithm 1, line 8): one call per minibatch, not per micro-batch. Differentiable in `logp_QNT`
    and `entropy_QNT`, which set the dtype. Entries outside the mask may hold anything and get a
    gradient of exactly 0; a question without responses does not count.

    Raises:
      ValueError: the objective needs log-probabilities or entropies that are missing.
    """
    for needed, given, what in (
        (objective.needs_old, batch.logp_old_QNT, "batch.logp_old_QNT"),
        (objective.needs_ref, batch.logp_ref_QNT, "batch.logp_ref_QNT"),
        (objective.needs_entropy, entropy_QNT, "entropy_QNT"),
    ):
        if needed and given is None:
            raise ValueError(f"{what} is None, but the objective is a function of it")
    logp_QNT, batch = select(logp_QNT, batch)
    compared = compare(objective, logp_QNT, batch)
    gained = (compared.count_Q * compared.value_Q).sum()
    counted = compared.count_Q.sum()
    kl = objective.penalty.kl(logp_QNT, batch)
    penalty = objective.penalty.cost(kl)
    scalar = penalty - gained / jnp.maximum(counted, 1)
    if objective.needs_entropy:
        scalar -= objective.entropy * masked.mean(entropy_QNT, batch.mask_QNT)

    one = jnp.ones_like(scalar)
    metrics = _describe(compared, logp_QNT, batch, entropy_QNT)
    metrics["objective/value"] = Mean(gained, counted)
    metrics["objective/loss"] = Mean(scalar, one)
    metrics["penalty/value"] = Mean(penalty, one)
    if objective.delta is not None:
        metrics["kl/over_delta"] = Mean((kl > objective.delta).astype(kl.dtype), one)
    return scalar, metrics


def _describe(compared: Comparison, logp_QNT, batch: Batch, entropy_QNT) -> Metrics:
    """What the minibatch is like, whatever the objective, as sums and counts."""
    row_QN = batch.mask_QNT.any(-1)
    right_QN, wrong_QN, mixed_Q = surrogates.split(batch.reward_QN, row_QN)
    lead_Q = masked.mean(compared.plus_QN, right_QN, -1)
    lead_Q -= masked.mean(compared.minus_QN, wrong_QN, -1)
    question_Q = row_QN.any(-1)
    parts = {
        "questions/all_right": (~wrong_QN.any(-1), question_Q),
        "questions/all_wrong": (~right_QN.any(-1), question_Q),
        "questions/valid": (compared.valid_Q, question_Q),
        "reward/mean": (batch.reward_QN, row_QN),
        "score/gap": (lead_Q, mixed_Q),
    }
    if batch.logp_old_QNT is not None:
        parts["kl/mean"] = (batch.logp_old_QNT - logp_QNT, batch.mask_QNT)  # k1 of KL(old || new)
    if entropy_QNT is not None:
        parts["entropy/mean"] = (entropy_QNT, batch.mask_QNT)
    return {
        name: Mean(masked.total(x.astype(logp_QNT.dtype), mask), masked.count(mask, logp_QNT))
        for name, (x, mask) in parts.items()
    }
