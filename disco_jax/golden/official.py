"""What the official code does and no method needs, for comparison with its numbers.

Its logged values, its hinge per micro-batch, its clamp of the reference KL, its count of clips.
"""

import dataclasses

import jax.numpy as jnp

from disco_jax.golden.case import Case
from disco_jax.objective import masked
from disco_jax.objective.penalties import ESTIMATORS
from disco_jax.objective.surrogates import Surrogate, split
from disco_jax.types import Batch


def pair(case: Case, words: set[str]):
    """Loss and gradient by rows of official_{pg_,policy_,}{loss,grad}{,_full,_accum}."""
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


def advantage(case: Case):
    """The advantage by rows that the question weight stands for: w / p or -w / (1 - p)."""
    same_BB = case.question_B[:, None] == case.question_B[None, :]
    n_B = masked.count(same_BB, case.policy, -1)
    p_B = jnp.where(same_BB, case.arrays["reward"][None, :], 0).sum(-1) / n_B
    share_B = jnp.where(case.arrays["reward"] > 0.5, p_B, p_B - 1)
    return case.made.weight(p_B, n_B) / jnp.where(share_B == 0, 1, share_B)


def clipped(case: Case):
    """Share of tokens at which clipping stops the gradient."""
    mask_BT = case.arrays["mask"] > 0
    rows = Batch(mask_BT, case.arrays["reward"], case.arrays["old_logp"])
    logp_BT, _ = case.tokens(case.policy)
    ratio_BT = jnp.exp(logp_BT - rows.logp_old_QNT)
    plus_BT, minus_BT = case.made.score.tokens(logp_BT, rows)
    advantage_B1 = advantage(case)[:, None]
    clipped_BT = jnp.where(advantage_B1 > 0, plus_BT < ratio_BT, minus_BT > ratio_BT)
    return masked.mean((clipped_BT & (advantage_B1 != 0)).astype(logp_BT.dtype), mask_BT)


def _clipfrac(case):
    if "delta" in case.h:
        return case.kl() > case.h["delta"]
    return clipped(case).astype(jnp.float32)  # the official code counts in float32


def _kl(case):
    return (case if "delta" in case.h else case.vary(penalty="kl_old(beta=1)")).kl()


NAMED = {
    "official_advantages": lambda case: advantage(case)[:, None] * (case.arrays["mask"] > 0),
    "official_ppo_kl": _kl,
    "official_kl_full": _kl,
    "official_kl_micro": lambda case: jnp.stack([part.kl() for part in _micro(case)]),
    "official_kl_loss": lambda case: _clamped_kl(*case.selected()),
    "official_pg_clipfrac": _clipfrac,
}
