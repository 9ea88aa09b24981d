"""Scores s+ and s-: what is raised for right responses and lowered for wrong ones (Table 6).

A score gives two values per token, which are summed over the response and divided by a length. The
two differ only where the score is clipped: gains and losses are clipped at different ends.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from disco_jax import calls
from disco_jax.objective import masked


class Score(NamedTuple):
    tokens: Callable  # logp_QNT, batch -> plus_QNT, minus_QNT
    two_sided: bool = False  # plus and minus differ
    needs_old: bool = False
    needs_ref: bool = False


def log_l():
    """log pi: the score of vanilla policy gradient (eqs. 16-17)."""
    return Score(lambda logp_QNT, batch: (logp_QNT, logp_QNT))


def l_ratio():
    """pi / pi_old: the score of TRPO's surrogate objective (eqs. 14-15)."""

    def tokens(logp_QNT, batch):
        ratio_QNT = masked.exp(logp_QNT - batch.logp_old_QNT)
        return ratio_QNT, ratio_QNT

    return Score(tokens, needs_old=True)


def clipped_ratio(low, high):
    """min(pi/pi_old, 1 + high) for right, max(pi/pi_old, 1 - low) for wrong responses (eq. 5)."""
    low = calls.number("low", low, above=0.0, below=1.0)
    high = calls.number("high", high, above=0.0)

    def tokens(logp_QNT, batch):
        ratio_QNT = masked.exp(logp_QNT - batch.logp_old_QNT)
        return jnp.minimum(ratio_QNT, 1 + high), jnp.maximum(ratio_QNT, 1 - low)

    return Score(tokens, two_sided=True, needs_old=True)


def log_ratio_ref():
    """log(pi / pi_ref), the implicit reward of DPO: TRPA."""

    def tokens(logp_QNT, batch):
        gain_QNT = logp_QNT - batch.logp_ref_QNT
        return gain_QNT, gain_QNT

    return Score(tokens, needs_ref=True)


SCORES = {
    "log_l": log_l,
    "l_ratio": l_ratio,
    "clipped_ratio": clipped_ratio,
    "log_ratio_ref": log_ratio_ref,
}


# Length normalisers: tokens_QN, the lengths |o| (0: no response), -> divisor, which broadcasts.


def response():
    """|o|: a mean over the response's own tokens."""
    return lambda tokens_QN: tokens_QN


def group():
    """The mean |o| of the question's responses (eqs. 20-21)."""
    return lambda tokens_QN: masked.mean(tokens_QN, tokens_QN > 0, -1)[:, None]


def batch():
    """The mean |o| of the minibatch: with questions="sized", a mean over all of its tokens."""
    return lambda tokens_QN: masked.mean(tokens_QN, tokens_QN > 0)


def constant(tokens):
    """The same for all, such as the greatest length allowed (implementations of Dr. GRPO)."""
    tokens = calls.number("tokens", tokens, above=0.0)
    return lambda tokens_QN: jnp.asarray(tokens, tokens_QN.dtype)


def none():
    """1: a sum over tokens (eq. 19, TRPA)."""
    return constant(1.0)


LENGTHS = {f.__name__: f for f in (response, group, batch, constant, none)}
