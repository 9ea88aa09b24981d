"""Question weights w(p): how much a question of difficulty p counts (Fig. 1a, Table 6).

p is the share of the question's n responses that are right.
"""

import jax.numpy as jnp

from disco_jax import calls


def one():
    """Every question alike: DisCO, TRPA, eq. 6."""
    return lambda p_Q, n_Q: jnp.ones_like(p_Q)


def std(ddof=0, eps=0.0):
    """sqrt(p(1-p)), which is what the advantage (r - mean) / std of eq. 12 comes to: GRPO, DAPO.

    The paper's std is the population's (ddof=0). Published GRPO code takes the sample's (ddof=1)
    and adds eps=1e-6: the advantage (r - p) / (std + eps) is the weight p(1-p) / (std + eps).
    """
    calls.choice("ddof", ddof, (0, 1))
    eps = calls.number("eps", eps, least=0.0)

    def weight(p_Q, n_Q):
        variance_Q = p_Q * (1 - p_Q)
        std_Q = jnp.sqrt(variance_Q * n_Q / jnp.maximum(n_Q - ddof, 1))
        return variance_Q / jnp.where(variance_Q > 0, std_Q + eps, 1)

    return weight


def var(alpha=1.0):
    """alpha p(1-p), which is what the advantage r - p comes to: Dr. GRPO (eq. 18), GPG (eq. 21)."""
    alpha = calls.number("alpha", alpha, above=0.0)
    return lambda p_Q, n_Q: alpha * p_Q * (1 - p_Q)


WEIGHTS = {"one": one, "std": std, "var": var}
