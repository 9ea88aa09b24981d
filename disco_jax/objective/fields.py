"""What each field of a golden case is, by the paper's equations or by the official code.

What the official code alone does (its logged values, its hinge per micro-batch, its clamp of the
reference KL) is needed for comparison only: it is here and not among the parts.
"""

import dataclasses

import jax.numpy as jnp

from disco_jax.objective import masked
from disco_jax.objective.golden import Case
from disco_jax.objective.penalties import ESTIMATORS
from disco_jax.objective.surrogates import Surrogate, split
from disco_jax.types import Batch

# A field is words: paper_grad_valid, loss_batch_tokenmean, J_alg1_all, official_policy_loss, ...
WHAT = {"loss": (0, 1), "grad": (1, 1), "J": (0, -1), "G1": (1, -1)}  # of (loss, gradient), sign
MEANS = {
    "all": {"questions": "all"},
    "qmean": {"questions": "all"},
    "valid": {"questions": "valid"},
    "rowmean": {"questions": "sized"},
    "tokenmean": {"questions": "sized", "length": "batch"},
}
WORDS = {*WHAT, *MEANS, "paper", "official", "pg", "policy", "full", "accum"}
WORDS |= {"batch", "alg1", "kltok", "logits"}


def number(case: Case, field: str):
    """The value of a field; KeyError if it is not a known one."""
    if field in NAMED:
        return NAMED[field](case)
    words = set(field.split("_"))
    if words - WORDS or len(words & set(WHAT)) != 1:
        raise KeyError(field)
    at, sign = next(WHAT[word] for word in words if word in WHAT)
    return sign * (_official if "official" in words else _paper)(case, words)[at]


def _paper(case, words):
    change = {}
    for word in words & set(MEANS):
        change |= MEANS[word]
    if words & {"pg", "J", "G1"}:
        change["penalty"] = "none"
    if "pg" in words:
        change["weight"] = "std"
    if "kltok" in words:
        change["penalty"] = case.parts["penalty"].replace("responses", "tokens")
    if "alg1" in words:
        change["surrogate"] = case.parts["surrogate"].replace(")", ", negatives='sum')")
    return case.vary(**change).loss()


def _official(case, words):
    if "accum" in words:
        return case.once("accum", _accumulated)
    if "policy" in words:
        return case.once("policy", _clamped_grpo)
    if "pg" in words:
        return case.vary(penalty="none").loss()
    return case.once("official", _disco)


def _disco(case):
    """The gradient of factor=1; the value has beta [kl - delta]_+ kl for a hinge, and DisCO's
    log-sum-exp appears as what carries its gradient, S / stop_gradient(S), which is 1."""
    made = case.vary(penalty=case.parts["penalty"].replace(")", ", factor=1)")).made
    bare = dataclasses.replace(made, penalty=made.penalty._replace(cost=jnp.zeros_like))

    def carried(plus_QN, minus_QN, reward_QN, row_QN):
        right_QN, _, valid_Q = split(reward_QN, row_QN)
        value_Q = masked.mean(plus_QN, right_QN, -1) - case.h["tau"]
        return jnp.where(valid_Q, value_Q, 0), valid_Q

    if "tau" in case.h:
        bare = dataclasses.replace(bare, surrogate=Surrogate(carried))
    kl = case.kl()
    hinge = case.h["beta"] * jnp.maximum(kl - case.h["delta"], 0) * kl
    return case.loss(bare)[0] + hinge, case.loss(made)[1]


def _micro(case):
    size = len(case.arrays["uid"]) // len(case.arrays["official_kl_micro"])
    return [case.take(slice(b, b + size)) for b in range(0, len(case.arrays["uid"]), size)]


def _accumulated(case):
    """Every micro-batch with its own KL and hinge, weighted by its share of the rows."""
    losses, gradients = zip(*map(_disco, _micro(case)), strict=True)
    return sum(losses) / len(losses), jnp.concatenate(gradients) / len(losses)


def _clamped_kl(logp_QNT, batch):
    kl_QNT = ESTIMATORS["k3"](batch.logp_ref_QNT - logp_QNT)
    return masked.mean(jnp.clip(kl_QNT, -10, 10), batch.mask_QNT)


def _clamped_grpo(case):
    penalty = case.made.penalty._replace(kl=_clamped_kl)
    return case.loss(dataclasses.replace(case.made, penalty=penalty))


def _clipped(case):
    """Share of tokens at which clipping stops the gradient."""
    mask_BT = case.arrays["mask"] > 0
    rows = Batch(mask_BT, case.arrays["reward"], case.arrays["old_logp"])
    logp_BT, _ = case.tokens(case.policy)
    ratio_BT = jnp.exp(logp_BT - rows.logp_old_QNT)
    plus_BT, minus_BT = case.made.score.tokens(logp_BT, rows)
    advantage_B1 = case.advantage()[:, None]
    clipped_BT = jnp.where(advantage_B1 > 0, plus_BT < ratio_BT, minus_BT > ratio_BT)
    return masked.mean((clipped_BT & (advantage_B1 != 0)).astype(logp_BT.dtype), mask_BT)


def _official_clipfrac(case):
    if "delta" in case.h:
        return case.kl() > case.h["delta"]
    return _clipped(case).astype(jnp.float32)  # the official code counts in float32


def _official_kl(case):
    return (case if "delta" in case.h else case.vary(penalty="kl_old(beta=1)")).kl()


def _row_scores(case):
    return case.compare().plus_QN[case.question_B, case.place_B]


def _group_value(case, **change):
    compared = case.vary(**change).compare()
    return jnp.where(compared.valid_Q, compared.value_Q, jnp.nan)


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
    "n_questions_valid": lambda case: case.compare().valid_Q.sum(),
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
    "mean_entropy": lambda case: masked.mean(case.tokens(case.policy)[1], case.arrays["mask"] > 0),
    "J_eq3_grpo": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
    "J_eq4_sqrt_weighted": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
    "official_advantages": lambda case: case.advantage()[:, None] * (case.arrays["mask"] > 0),
    "official_ppo_kl": _official_kl,
    "official_kl_full": Case.kl,
    "official_kl_micro": lambda case: jnp.stack([part.kl() for part in _micro(case)]),
    "official_kl_loss": lambda case: _clamped_kl(*case.selected()),
    "official_pg_clipfrac": _official_clipfrac,
}
