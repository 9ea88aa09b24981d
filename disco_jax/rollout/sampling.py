"""Random numbers and the choice of a token.

A response's random numbers depend on (seed, role, step, question, sample, position) and on
nothing else: not on the slot, the number of slots, the mesh, or the order of finishing.
"""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# Streams that must not share random numbers although seed, step and question agree.
ROLES = {"train": 0, "eval": 1}


def response_keys(seed: int, role: str, step: int, question_Q: np.ndarray, samples: int) -> Array:
    """One key per response, [Q, N] typed PRNG keys.

    Args:
      seed: of the run.
      role: a key of `ROLES`.
      step: training step (for evaluation: 0, so that every evaluation uses the same numbers).
      question_Q: the questions' indices in their data set, each once.
      samples: N.
    """
    question_Q = np.asarray(question_Q, np.uint32)
    return _response_keys(seed, ROLES[role], step, question_Q, np.arange(samples, dtype=np.uint32))


@jax.jit
def _response_keys(seed, role, step, question_Q, sample_N):
    key = jax.random.key(seed)
    for number in (role, step):
        key = jax.random.fold_in(key, number)
    key_Q = jax.vmap(jax.random.fold_in, (None, 0))(key, question_Q)
    fold_samples = jax.vmap(jax.random.fold_in, (None, 0))
    return jax.vmap(fold_samples, (0, None))(key_Q, sample_N)


def nucleus(logits_SV: Array, top_p: float) -> Array:
    """Drops (to -inf) every token outside the smallest set of probability >= top_p."""
    descending_SV = jnp.sort(logits_SV, axis=-1, descending=True)
    p_SV = jax.nn.softmax(descending_SV, axis=-1)
    before_SV = jnp.cumsum(p_SV, axis=-1) - p_SV  # mass above a token; the first always stays
    kept_S = jnp.sum(before_SV < top_p, axis=-1, keepdims=True)
    threshold_S1 = jnp.take_along_axis(descending_SV, kept_S - 1, axis=-1)
    return jnp.where(logits_SV >= threshold_S1, logits_SV, -jnp.inf)


def sample(
    logits_SV: Array, key_S: Array, position_S: Array, temperature: float, top_p: float
) -> tuple[Array, Array]:
    """Draws one token per slot.

    Args:
      logits_SV: float32, untempered.
      key_S: the responses' keys.
      position_S: int32, the index of the token within its response.
      temperature: divides the logits; 0 chooses the most likely token.
      top_p: nucleus sampling below 1.

    Returns:
      token_S int32, and logp_S float32: its log-probability at `temperature` over the whole
      vocabulary (at 1 when greedy), which is what the trainer recomputes, whatever `top_p` is.
    """
    tempered_SV = logits_SV / (temperature or 1.0)
    if temperature == 0:
        token_S = jnp.argmax(logits_SV, axis=-1)
    else:
        key_S = jax.vmap(jax.random.fold_in)(key_S, position_S)
        allowed_SV = nucleus(tempered_SV, top_p) if top_p < 1 else tempered_SV
        token_S = jax.vmap(jax.random.categorical)(key_S, allowed_SV)
    chosen_S = jnp.take_along_axis(tempered_SV, token_S[:, None], axis=-1)[:, 0]
    logp_S = chosen_S - jax.nn.logsumexp(tempered_SV, axis=-1)
    return token_S.astype(jnp.int32), logp_S
