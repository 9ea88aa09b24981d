"""Per-token log-probability and entropy without the logits of all tokens in memory.

Tokens go through the output head in chunks; a chunk's logits [chunk, V] are the largest array,
forward and backward (the backward pass recomputes them). Logits, the log-softmax and everything
after are float32 whatever the dtype of the hidden states: rounding logits to bfloat16 alone makes
a KL of about 3e-4 between identical policies, above the paper's delta of 1e-4.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class TokenStats(NamedTuple):
    """Float32 [B, L] figures of the distribution that predicts each target token."""

    logp_BL: Array  # log softmax(logits / temperature)[target]
    entropy_BL: Array  # entropy of softmax(logits / temperature), nats
    entropy_raw_BL: Array  # entropy of softmax(logits), nats


def _entropy(logits_CV: Array, lse_C: Array) -> Array:
    p_CV = jnp.exp(logits_CV - lse_C[:, None])
    return lse_C - jnp.sum(p_CV * logits_CV, axis=-1)


def token_stats(
    hidden_BLD: Array, head_DV: Array, target_BL: Array, temperature: float, chunk: int
) -> TokenStats:
    """Statistics of softmax(hidden @ head / temperature) at the target tokens.

    Args:
      hidden_BLD: hidden states after the last norm; the one at l predicts `target_BL[:, l]`.
      head_DV: the output head.
      target_BL: int32 token ids.
      temperature: divides the logits (never the log-probabilities).
      chunk: tokens per chunk; the tail is padded.
    """
    B, L, D = hidden_BLD.shape
    tokens = B * L
    chunk = min(chunk, tokens)
    padding = -tokens % chunk
    hidden_MCD = jnp.pad(hidden_BLD.reshape(tokens, D), ((0, padding), (0, 0)))
    hidden_MCD = hidden_MCD.reshape(-1, chunk, D)
    target_MC = jnp.pad(target_BL.reshape(tokens), (0, padding)).reshape(-1, chunk)
    head_DV = head_DV.astype(hidden_BLD.dtype)

    @jax.checkpoint
    def one_chunk(args: tuple[Array, Array]) -> TokenStats:
        hidden_CD, target_C = args
        raw_CV = jnp.dot(hidden_CD, head_DV, preferred_element_type=jnp.float32)
        logits_CV = raw_CV / temperature
        lse_C = jax.nn.logsumexp(logits_CV, axis=-1)
        target_logit_C = jnp.take_along_axis(logits_CV, target_C[:, None], axis=-1)[:, 0]
        return TokenStats(
            target_logit_C - lse_C,
            _entropy(logits_CV, lse_C),
            _entropy(raw_CV, jax.nn.logsumexp(raw_CV, axis=-1)),
        )

    stats = jax.lax.map(one_chunk, (hidden_MCD, target_MC))
    return TokenStats(*(x.reshape(-1)[:tokens].reshape(B, L) for x in stats))
