"""What each field of a golden case is, by the paper's equations or by the official code.

What the official code alone does (its logged values, its hinge per micro-batch, its clamp of the
reference KL) is needed for comparison only: it is here and not among the parts.
"""

import dataclasses
import re

import jax.numpy as jnp

from disco_jax.objective import masked
from disco_jax.objective.golden import Case
from disco_jax.objective.penalties import ESTIMATORS
from disco_jax.objective.surrogates import Surrogate, split
from disco_jax.types import Batch

MEANS = {  # what J is a mean over, by suffix
    "all": {"questions": "all"},
    "qmean": {"questions": "all"},
    "valid": {"questions": "valid"},
    "rowmean": {"questions": "sized"},
    "batch_tokenmean": {"questions": "sized", "length": "batch"},
}
EQUATION = re.compile(  # loss_qmean_kltok, paper_grad_valid, J_alg1_all, paper_pg_loss, grad_logits
    r"(?:paper_)?(?P<bare>pg_)?(?P<what>loss|grad|J|G1)(?P<alg1>_alg1)?(?:_logits)?"
    rf"(?:_(?P<mean>{'|'.join(MEANS)}))?(?P<kltok>_kltok)?"
)


def number(case: Case, field: str):
    """The value of a field; KeyError if it is not one of those known."""
    if match := EQUATION.fullmatch(field):
        return _equation(case, **match.groupdict())
    return (NAMED | (DISCO if "delta" in case.h else GRPO))[field](case)


def _equation(case, bare, what, alg1, mean, kltok):
    change = dict(MEANS.get(mean, {}))
    if bare or what in ("J", "G1"):
        change["penalty"] = "none"
    if bare:
        change["weight"] = "std"
    if kltok:
        change["penalty"] = case.parts["penalty"].replace("responses", "tokens")
    if alg1:
        change["surrogate"] = case.parts["surrogate"].replace(")", ", negatives='sum')")
    loss, gradient = case.vary(**change).loss()
    return {"loss": loss, "grad": gradient, "J": -loss, "G1": -gradient}[what]


def _group_value(case, **change):
    compared = case.vary(**change).compare()
    return jnp.where(compared.valid_Q, compared.value_Q, jnp.nan)


def _official_disco(case):
    """The official loss: the gradient of factor=1, but other values.

    The hinge is logged as beta [kl - delta]_+ kl, and the log-sum-exp of DisCO as its gradient's
    carrier S / stop_gradient(S), which is 1.
    """
    made = case.vary(penalty=case.parts["penalty"].replace(")", ", factor=1)")).made
    _, gradient = case.loss(made)
    if "tau" in case.h:

        def carried(plus_QN, minus_QN, reward_QN, row_QN):
            right_QN, _, valid_Q = split(reward_QN, row_QN)
            value_Q = masked.mean(plus_QN, right_QN, -1) - case.h["tau"]
            return jnp.where(valid_Q, value_Q, 0), valid_Q

        made = dataclasses.replace(made, surrogate=Surrogate(carried))
    kl = case.kl()
    force = case.h["beta"] * jnp.maximum(kl - case.h["delta"], 0)
    unpenalised = made.penalty._replace(cost=jnp.zeros_like)
    value, _ = case.loss(dataclasses.replace(made, penalty=unpenalised))
    return value + force * kl, gradient


def _micro(case):
    parts = len(case.arrays["official_kl_micro"])
    rows = len(case.arrays["uid"]) // parts
    return [case.take(slice(i * rows, (i + 1) * rows)) for i in range(parts)]


def _accumulated(case):
    """Every micro-batch with its own KL and hinge, weighted by its share of the rows."""
    losses, gradients = zip(*map(_official_disco, _micro(case)), strict=True)
    return sum(losses) / len(losses), jnp.concatenate(gradients) / len(losses)


def _official_grpo(case):
    """With the k3 terms of the reference KL clamped to at most 10."""

    def kl(logp_QNT, batch):
        kl_QNT = ESTIMATORS["k3"](batch.logp_ref_QNT - logp_QNT)
        return masked.mean(jnp.clip(kl_QNT, -10, 10), batch.mask_QNT)

    penalty = case.made.penalty._replace(kl=kl)
    return *case.loss(dataclasses.replace(case.made, penalty=penalty)), kl(*case.given()[:2])


def _clipped(case):
    """Share of tokens at which clipping stops the gradient."""
    mask_BT = case.arrays["mask"] > 0
    rows = Batch(mask_BT, case.arrays["reward"], case.arrays["old_logp"])
    logp_BT, _ = case.tokens(case.policy)
    ratio_BT = jnp.exp(logp_BT - rows.logp_old_QNT)
    plus_BT, minus_BT = case.made.score.tokens(logp_BT, rows)
    advantage_B1 = case.advantage()[:, None]
    clipped_BT = jnp.where(advantage_B1 > 0, plus_BT < ratio_BT, minus_BT > ratio_BT)
    return masked.mean((clipped_BT & (advantage_B1 != 0)).astype(case.policy.dtype), mask_BT)


def _row_scores(case):
    return case.compare().plus_QN[case.question_B, case.place_B]


def _mean_entropy(case):
    return masked.mean(case.tokens(case.policy)[1], case.arrays["mask"] > 0)


def _valid_questions(case):
    return case.compare().valid_Q.sum()


def first_end(tokens_BT, end):
    """True through the first `end` token; everywhere in a response that has none."""
    is_end_BT = tokens_BT == end
    return jnp.cumsum(is_end_BT, -1) - is_end_BT == 0


SUM = "dro(tau={tau}, negatives='sum')"
NAMED = {
    "scores": _row_scores,
    "seq_log_ratio": _row_scores,
    "group_uid": lambda case: jnp.asarray(case.uid_Q),
    "group_J": _group_value,
    "group_J_alg1": lambda case: _group_value(case, surrogate=SUM.format(**case.h)),
    "n_questions_all": lambda case: len(case.uid_Q),
    "n_questions_valid": _valid_questions,
    "kl": Case.kl,
    "kl_ref": Case.kl,
    "kl_ref_kltok": lambda case: case.vary(penalty="kl_ref(beta=1)").kl(),
    "penalty": lambda case: case.penalty()[0],
    "G2": lambda case: case.penalty()[1],
    "paper_G2": lambda case: case.penalty()[1],
    "advantage": Case.advantage,
    "paper_advantage": lambda case: case.vary(weight="std").advantage(),
    "clipfrac": _clipped,
    "entropy": lambda case: case.tokens(case.policy)[1],
    "new_logp": lambda case: case.tokens(case.policy)[0],
    "mean_entropy": _mean_entropy,
    "J_eq3_grpo": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
    "J_eq4_sqrt_weighted": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
}
DISCO = {
    "official_loss": lambda case: _official_disco(case)[0],
    "official_grad": lambda case: _official_disco(case)[1],
    "official_ppo_kl": Case.kl,
    "official_pg_clipfrac": lambda case: case.kl() > case.h["delta"],
    "official_loss_full": lambda case: _official_disco(case)[0],
    "official_grad_full": lambda case: _official_disco(case)[1],
    "official_kl_full": Case.kl,
    "official_kl_micro": lambda case: jnp.stack([part.kl() for part in _micro(case)]),
    "official_loss_accum": lambda case: _accumulated(case)[0],
    "official_grad_accum": lambda case: _accumulated(case)[1],
}
GRPO = {
    "official_advantages": lambda case: case.advantage()[:, None] * (case.arrays["mask"] > 0),
    "official_pg_loss": lambda case: case.vary(penalty="none").loss()[0],
    "official_pg_grad": lambda case: case.vary(penalty="none").loss()[1],
    "official_pg_clipfrac": lambda case: _clipped(case).astype(jnp.float32),  # counted in float32
    "official_ppo_kl": lambda case: case.vary(penalty="kl_old(beta=1)").kl(),
    "official_kl_loss": lambda case: _official_grpo(case)[2],
    "official_policy_loss": lambda case: _official_grpo(case)[0],
    "official_policy_grad": lambda case: _official_grpo(case)[1],
}
