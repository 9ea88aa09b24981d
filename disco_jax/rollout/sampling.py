"""Random numbers and the choice of a token.

A response's random numbers depend on (seed, role, step, question, sample, position) and on
nothing else: not on the slot, the number of slots, the mesh, or the order of finishing.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

# Streams that must not share random numbers although seed, step and question agree.
ROLES = {"train": 0, "eval": 1}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is chosen, applied in this order.

    Attributes:
      temperature: divides the logits; 0 takes the most likely token.
      top_k: keeps the k most likely tokens; 0 keeps all.
      top_p: keeps the smallest set of tokens with at least this probability.
      min_p: keeps tokens at least this fraction as likely as the likeliest.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError: a value out of range, by name."""
        allowed = {
            "temperature": (0 <= self.temperature < math.inf, "at least 0"),
            "top_k": (self.top_k >= 0, "at least 0 (0: all tokens)"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (0 <= self.min_p < 1, "in [0, 1)"),
        }
        for name, (good, text) in allowed.items():
            if not good:
                raise ValueError(f"rollout.{name}={getattr(self, name)!r}: must be {text}")


class Drawn(NamedTuple):
    """One token per slot, and its log-probability in two distributions (float32)."""

    token_S: Array  # int32
    logp_S: Array  # at the temperature over the whole vocabulary (at 1 when greedy)
    drawn_logp_S: Array  # of the distribution drawn from: after top-k, top-p and min-p; greedy: 0


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


def likeliest(logits_SV: Array, top_k: int) -> Array:
    """Drops (to -inf) every token less likely than the k-th; ties with it stay."""
    least_S1 = jax.lax.top_k(logits_SV, min(top_k, logits_SV.shape[-1]))[0][:, -1:]
    return jnp.where(logits_SV >= least_S1, logits_SV, -jnp.inf)


def nucleus(logits_SV: Array, top_p: float) -> Array:
    """Drops (to -inf) every token outside the smallest set of probability >= top_p."""
    descending_SV = jnp.sort(logits_SV, axis=-1, descending=True)
    p_SV = jax.nn.softmax(descending_SV, axis=-1)
    before_SV = jnp.cumsum(p_SV, axis=-1) - p_SV  # mass above a token; the first always stays
    kept_S = jnp.sum(before_SV < top_p, axis=-1, keepdims=True)
    threshold_S1 = jnp.take_along_axis(descending_SV, kept_S - 1, axis=-1)
    return jnp.where(logits_SV >= threshold_S1, logits_SV, -jnp.inf)


def near_likeliest(logits_SV: Array, min_p: float) -> Array:
    """Drops (to -inf) every token of probability below min_p times the largest one's."""
    least_S1 = jnp.max(logits_SV, axis=-1, keepdims=True) + math.log(min_p)
    return jnp.where(logits_SV >= least_S1, logits_SV, -jnp.inf)


def allowed(logits_SV: Array, sampling: Sampling) -> Array:
    """Tempered logits [S, V] with the tokens outside top-k, top-p and min-p dropped to -inf."""
    if sampling.top_k:
        logits_SV = likeliest(logits_SV, sampling.top_k)
    if sampling.top_p < 1:
        logits_SV = nucleus(logits_SV, sampling.top_p)
    if sampling.min_p:
        logits_SV = near_likeliest(logits_SV, sampling.min_p)
    return logits_SV


def sample(logits_SV: Array, key_S: Array, position_S: Array, sampling: Sampling) -> Drawn:
    """Draws one token per slot: a pure function of (logits, key, position), slot by slot.

    Args:
      logits_SV: float32, untempered.
      key_S: the responses' keys.
      position_S: int32, the index of the token within its response.
    """

    def at(x_SV: Array, token_S: Array) -> Array:
        return jnp.take_along_axis(x_SV, token_S[:, None], axis=-1)[:, 0]

    if sampling.temperature == 0:
        token_S = jnp.argmax(logits_SV, axis=-1).astype(jnp.int32)
        logp_S = at(logits_SV, token_S) - jax.nn.logsumexp(logits_SV, axis=-1)
        return Drawn(token_S, logp_S, jnp.zeros_like(logp_S))
    tempered_SV = logits_SV / sampling.temperature
    weight_SV = jnp.exp(tempered_SV - jnp.max(tempered_SV, axis=-1, keepdims=True))
    kept_SV = weight_SV
    if sampling != Sampling(sampling.temperature):
        kept_SV = jnp.where(jnp.isfinite(allowed(tempered_SV, sampling)), weight_SV, 0)
    key_S = jax.vmap(jax.random.fold_in)(key_S, position_S)
    uniform_S2 = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(key_S)
    token_S = choose(kept_SV, uniform_S2)
    log_weight_S = jnp.log(at(weight_SV, token_S))
    logp_S = log_weight_S - jnp.log(jnp.sum(weight_SV, axis=-1))
    drawn_logp_S = logp_S
    if kept_SV is not weight_SV:
        drawn_logp_S = log_weight_S - jnp.log(jnp.sum(kept_SV, axis=-1))
    return Drawn(token_S, logp_S, drawn_logp_S)


def choose(weight_SV: Array, uniform_S2: Array) -> Array:
    """Index drawn in proportion to weights that need not sum to 1, by two inverse CDFs.

    The first uniform number picks a block of about sqrt(V) entries, the second an entry of it:
    a sum over V and two short scans, where Gumbel noise is V logarithms per token. An entry of
    weight 0 is never drawn.
    """
    S, V = weight_SV.shape
    width = 1 << (V.bit_length() + 1) // 2
    weight_SV = jnp.pad(weight_SV, ((0, 0), (0, -V % width)))
    weight_SYW = weight_SV.reshape(S, -1, width)
    block_S = _inverse_cdf(weight_SYW.sum(-1), uniform_S2[:, 0])
    inside_SW = jnp.take_along_axis(weight_SYW, block_S[:, None, None], axis=1)[:, 0]
    return (block_S * width + _inverse_cdf(inside_SW, uniform_S2[:, 1])).astype(jnp.int32)


def _inverse_cdf(weight_SY: Array, uniform_S: Array) -> Array:
    sum_SY = jnp.cumsum(weight_SY, axis=-1)
    index_S = jnp.argmax(sum_SY > (uniform_S * sum_SY[:, -1])[:, None], axis=-1)
    # Partial sums carry rounding errors: they may rise, or not reach the last one, at weight 0.
    drawn_S = jnp.take_along_axis(weight_SY, index_S[:, None], axis=-1)[:, 0]
    return jnp.where(drawn_S > 0, index_S, jnp.argmax(weight_SY, axis=-1))
