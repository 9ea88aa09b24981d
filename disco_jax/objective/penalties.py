"""Penalties that hold the policy near another one, by a sampled KL divergence.

KL(a || b) is estimated from tokens drawn from a, as a mean over the whole minibatch of one of, with
d = log b - log a (Schulman 2020, Approximating KL divergence):

    k1 = -d              unbiased, may be negative; Algorithm 1, line 8
    k2 = d^2 / 2         biased, never negative
    k3 = e^d - 1 - d     unbiased, never negative
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from disco_jax import calls
from disco_jax.objective import masked

ESTIMATORS = {
    "k1": lambda d: -d,
    "k2": lambda d: jnp.square(d) / 2,
    "k3": lambda d: masked.exp(d) - 1 - d,
}


class Penalty(NamedTuple):
    kl: Callable  # logp_QNT, batch -> scalar, nats per token
    cost: Callable  # kl -> scalar, to be minimised
    needs_old: bool = False
    needs_ref: bool = False
    delta: float | None = None  # radius of the trust region, where there is one


def _divergence(step, estimator, mean="tokens"):
    """A mean over tokens, or over responses of token means, of the estimator of d = step(...)."""
    calls.choice("estimator", estimator, tuple(ESTIMATORS))
    calls.choice("mean", mean, ("tokens", "responses"))

    def kl(logp_QNT, batch):
        kl_QNT = ESTIMATORS[estimator](step(logp_QNT, batch))
        if mean == "tokens":
            return masked.mean(kl_QNT, batch.mask_QNT)
        return masked.mean(masked.mean(kl_QNT, batch.mask_QNT, -1), batch.mask_QNT.any(-1))

    return kl


def _from_old(logp_QNT, batch):
    return logp_QNT - batch.logp_old_QNT


def none():
    """No penalty: Dr. GRPO, DAPO, GPG."""
    return Penalty(lambda logp_QNT, batch: jnp.zeros((), logp_QNT.dtype), lambda kl: kl)


def kl_ref(beta, estimator="k3", mean="tokens"):
    """beta KL(pi || pi_ref): GRPO (eq. 2). The paper names no estimator; k3 is the usual one."""
    beta = calls.number("beta", beta, least=0.0)
    kl = _divergence(lambda logp_QNT, batch: batch.logp_ref_QNT - logp_QNT, estimator, mean)
    return Penalty(kl, lambda kl: beta * kl, needs_ref=True)


def kl_old(beta, estimator="k1", mean="tokens"):
    """beta KL(pi_old || pi): TRPA, and the regularised DisCO of section 6.2."""
    beta = calls.number("beta", beta, least=0.0)
    return Penalty(_divergence(_from_old, estimator, mean), lambda kl: beta * kl, needs_old=True)


def squared_hinge(beta=1e3, delta=1e-4, factor=2, estimator="k1"):
    """beta [KL(pi_old || pi) - delta]_+^2: DisCO's constraint (eq. 9).

    Its gradient is factor * beta [KL - delta]_+ grad KL: factor=2 is eq. 9 and Algorithm 1, line
    10; factor=1 the official code, and section 6's "effective weight beta * delta". The value is
    the one that has this gradient, factor / 2 * beta [KL - delta]_+^2.
    """
    beta = calls.number("beta", beta, least=0.0)
    delta = calls.number("delta", delta, least=0.0)
    scale = calls.number("factor", factor, above=0.0) / 2 * beta
    kl = _divergence(_from_old, estimator)
    cost = lambda kl: scale * jnp.square(jnp.maximum(kl - delta, 0))  # noqa: E731
    return Penalty(kl, cost, needs_old=True, delta=delta)


PENALTIES = {f.__name__: f for f in (none, kl_ref, kl_old, squared_hinge)}
