"""What each field of a golden case is, by the paper's equations."""

import jax
import jax.numpy as jnp

from disco_jax.golden import official
from disco_jax.golden.case import Case
from disco_jax.objective import masked

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
    return sign * (official.pair if "official" in words else _paper)(case, words)[at]


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


def _penalty(case):
    """The penalty and its gradient by rows."""
    cost = case.made.penalty.cost
    return jax.value_and_grad(lambda policy: cost(case.kl(policy)))(case.policy)


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
    "penalty": lambda case: _penalty(case)[0],
    "G2": lambda case: _penalty(case)[1],
    "paper_G2": lambda case: _penalty(case)[1],
    "advantage": official.advantage,
    "paper_advantage": lambda case: official.advantage(case.vary(weight="std")),
    "clipfrac": official.clipped,
    "entropy": lambda case: case.tokens(case.policy)[1],
    "new_logp": lambda case: case.tokens(case.policy)[0],
    "mean_entropy": lambda case: masked.mean(case.tokens(case.policy)[1], case.arrays["mask"] > 0),
    "J_eq3_grpo": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
    "J_eq4_sqrt_weighted": lambda case: -case.vary(weight="std", penalty="none").loss()[0],
}
NAMED |= official.NAMED
