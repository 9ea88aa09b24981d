"""Grouped-query attention, in the two shapes that the decoder needs: packed rows, and a cache."""

import jax
import jax.numpy as jnp

Array = jax.Array


def packed_attention(q_BLHd: Array, k_BLKd: Array, v_BLKd: Array, segment_BL: Array) -> Array:
    """Causal attention within the segments of packed rows.

    Args:
      q_BLHd, k_BLKd, v_BLKd: queries, keys, values; H is a multiple of K.
      segment_BL: int32; a token sees itself and the earlier tokens of its own segment.

    Returns:
      [B, L, H, d] in the dtype of the queries.
    """
    same_BLL = segment_BL[:, :, None] == segment_BL[:, None, :]
    mask_BLL = same_BLL & jnp.tri(segment_BL.shape[1], dtype=bool)
    return cached_attention(q_BLHd, k_BLKd.swapaxes(1, 2), v_BLKd.swapaxes(1, 2), mask_BLL)


def cached_attention(q_SLHd: Array, k_SKCd: Array, v_SKCd: Array, mask_SLC: Array) -> Array:
    """Attention of L new tokens of each slot over that slot's cache of C positions.

    Args:
      q_SLHd: queries of the new tokens.
      k_SKCd, v_SKCd: the cache, the new tokens' keys and values already written.
      mask_SLC: bool, the cache positions each new token may see. A token that sees none (a slot
        that was never filled) gets nan, which stays in its own slot.

    Returns:
      [S, L, H, d] in the dtype of the queries; scores and softmax are float32.
    """
    S, L, H, d = q_SLHd.shape
    K = k_SKCd.shape[1]
    G = H // K  # query heads that share a key/value head
    q_SKXd = q_SLHd.reshape(S, L, K, G, d).transpose(0, 2, 3, 1, 4).reshape(S, K, G * L, d)
    scores_SKXC = jnp.einsum("skxd,skcd->skxc", q_SKXd, k_SKCd, preferred_element_type=jnp.float32)
    scores_SKGLC = scores_SKXC.reshape(S, K, G, L, -1) * d**-0.5
    scores_SKGLC = jnp.where(mask_SLC[:, None, None], scores_SKGLC, -jnp.inf)
    p_SKXC = jax.nn.softmax(scores_SKGLC, axis=-1).reshape(scores_SKXC.shape).astype(q_SLHd.dtype)
    out_SKXd = jnp.einsum("skxc,skcd->skxd", p_SKXC, v_SKCd)
    return out_SKXd.reshape(S, K, G, L, d).transpose(0, 3, 1, 2, 4).reshape(S, L, H, d)
