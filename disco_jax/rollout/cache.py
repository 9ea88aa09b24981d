"""The key/value cache of the slots: a window that slides with a common clock.

Rotary positions are in the keys before they are cached, so where a key lies in the cache is free.
All slots therefore write their newest key at the same column, whatever their lengths: one
contiguous update per step instead of a scatter. A slot's context is the stretch that ends at
the clock's column, prompt first:

    column     0 ...                 W-1 | W ... W+R-1
    slot 0     . . p p p p r r r r r r r | r r .  .        p prompt, r response
    slot 1     . . . . . . . p p p p p p | r r .  .        . never read
    slot 2     . . . . . . . . . . p p p | p r .  .        (refilled after one step)
               past: only read             fresh: written, R columns

When the fresh columns are full they slide into the past, whose width W is the smallest of a
ladder of widths that holds the longest live context. The past is its own buffer because XLA:CPU
copies a buffer that is both sliced and written in a loop.

Axes beyond those of `types.py`: W columns of the past, R fresh columns, d head size, I
insertions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from disco_jax.model.dims import ModelDims

Array = jax.Array


class LayerCache(NamedTuple):
    """Keys with columns last and values with columns before the head: both products stream.

    Fresh columns hold numbers of the past's dtype, perhaps as float32 (see `empty`).
    """

    past_k: Array  # [S, K, d, W]
    past_v: Array  # [S, K, W, d]
    fresh_k: Array  # [S, K, d, R]
    fresh_v: Array  # [S, K, R, d]


Cache = tuple[LayerCache, ...]
# Per layer, of prefilled prompts: keys [Q, K, d, P] and values [Q, K, P, d], right-aligned.
PromptCache = tuple[tuple[Array, Array], ...]


def ladder(least: int, most: int, multiple: int = 1) -> tuple[int, ...]:
    """Sizes from `least` to `most`, each about 1.4 times the one before: 8, 12, 16, 24, 32, ...

    All but the last are multiples of `multiple`. A quantity that grows by one costs at most half
    as much again when rounded up, and there are few programs to compile.
    """
    sizes, size = [], least
    while size < most:
        rounded = -(-size // multiple) * multiple
        if rounded < most and rounded not in sizes:
            sizes.append(rounded)
        size = size * 3 // 2 if size > 1 and size & (size - 1) == 0 else 1 << size.bit_length()
    return (*sizes, most)


def round_up(size: int, sizes: tuple[int, ...]) -> int:
    """The smallest of the ascending `sizes` that is at least `size`; the last if none is."""
    return next((s for s in sizes if s >= size), sizes[-1])


def empty(
    dims: ModelDims, slots: int, past: int, fresh: int, dtype: Any, fresh_dtype: Any
) -> Cache:
    """Zeros: nan or infinity in a column that is never read would still spoil the products.

    Args:
      fresh_dtype: `dtype`, or float32 on XLA:CPU, which would rewrite a whole bfloat16 buffer to
        update a part of it.
    """
    S, K, d = slots, dims.kv_heads, dims.head_dim

    def layer() -> LayerCache:
        return LayerCache(
            jnp.zeros((S, K, d, past), dtype),
            jnp.zeros((S, K, past, d), dtype),
            jnp.zeros((S, K, d, fresh), fresh_dtype),
            jnp.zeros((S, K, fresh, d), fresh_dtype),
        )

    return tuple(layer() for _ in range(dims.layers))


def widths(cache: Cache) -> tuple[int, int]:
    """(W, R)."""
    return cache[0].past_k.shape[-1], cache[0].fresh_k.shape[-1]


def attend(layer: LayerCache, q_SHd: Array, k_SKd: Array, v_SKd: Array, start_S: Array, at: Array):
    """Writes the newest keys and values at fresh column `at` and attends to the live columns.

    Args:
      start_S: the first column of each slot's context, counted through past and fresh.

    Returns:
      [S, H, d] in the dtype of the queries, and the layer's cache. Scores and softmax are float32.
    """
    S, H, d = q_SHd.shape
    K, W, R = k_SKd.shape[1], layer.past_k.shape[-1], layer.fresh_k.shape[-1]
    dtype, fresh_dtype = layer.past_k.dtype, layer.fresh_k.dtype
    k_SKd, v_SKd = k_SKd.astype(dtype).astype(fresh_dtype), v_SKd.astype(dtype).astype(fresh_dtype)
    fresh_k = jax.lax.dynamic_update_slice_in_dim(layer.fresh_k, k_SKd[..., None], at, axis=3)
    fresh_v = jax.lax.dynamic_update_slice_in_dim(layer.fresh_v, v_SKd[:, :, None], at, axis=2)
    q_SKGd = (q_SHd.astype(jnp.float32) * d**-0.5).astype(dtype).reshape(S, K, H // K, d)
    column_W, column_R = jnp.arange(W), jnp.arange(R)
    seen_SW = column_W >= start_S[:, None]
    seen_SR = (W + column_R >= start_S[:, None]) & (column_R <= at)

    def scores(k_SKdC: Array, seen_SC: Array) -> Array:
        q = q_SKGd.astype(k_SKdC.dtype)
        s_SKGC = jnp.einsum("skgd,skdc->skgc", q, k_SKdC, preferred_element_type=jnp.float32)
        return jnp.where(seen_SC[:, None, None], s_SKGC, -jnp.inf)

    def weighted(p_SKGC: Array, v_SKCd: Array) -> Array:
        p_SKGC = p_SKGC.astype(dtype).astype(v_SKCd.dtype)
        return jnp.einsum("skgc,skcd->skgd", p_SKGC, v_SKCd, preferred_element_type=jnp.float32)

    past_SKGW, fresh_SKGR = scores(layer.past_k, seen_SW), scores(fresh_k, seen_SR)
    # The newest column is always seen, so the maximum is finite.
    peak = jnp.maximum(past_SKGW.max(-1, keepdims=True), fresh_SKGR.max(-1, keepdims=True))
    past_SKGW, fresh_SKGR = jnp.exp(past_SKGW - peak), jnp.exp(fresh_SKGR - peak)
    total = past_SKGW.sum(-1, keepdims=True) + fresh_SKGR.sum(-1, keepdims=True)
    out_SKGd = weighted(past_SKGW, layer.past_v) + weighted(fresh_SKGR, fresh_v)
    out_SHd = (out_SKGd / total).astype(q_SHd.dtype).reshape(S, H, d)
    return out_SHd, layer._replace(fresh_k=fresh_k, fresh_v=fresh_v)


def insert(cache: Cache, prompts: PromptCache, slot_I: Array, row_I: Array, count, fill) -> Cache:
    """Copies prompts into slots, so that they end just before fresh column `fill`.

    Only the first `count` entries of slot_I and row_I (rows of `prompts`) are used; the cost is
    that of the rows written.
    """
    W, R = widths(cache)
    dtype = cache[0].past_k.dtype
    # XLA:CPU, see `empty`: rows of whole numbers are updated where they are, those of bfloat16 not.
    as_bits = dtype != cache[0].fresh_k.dtype

    def place(prompt: Array, axis: int) -> Array:
        """One prompt [1, K, ., .] as a slot's row of past and fresh columns."""
        pad = [(0, 0)] * 4
        pad[axis] = (W + R, R)
        padded = jnp.pad(prompt, pad)
        start = R + prompt.shape[axis] - fill
        return jax.lax.dynamic_slice_in_dim(padded, start, W + R, axis)

    def write(past: Array, fresh: Array, prompts: Array, axis: int, slot, row):
        prompt = jax.lax.dynamic_slice_in_dim(prompts, row, 1, 0).astype(dtype)
        first, second = jnp.split(place(prompt, axis), [W], axis)
        if as_bits:
            first = jax.lax.bitcast_convert_type(first, past.dtype)
        update = jax.lax.dynamic_update_slice_in_dim
        return update(past, first, slot, 0), update(fresh, second.astype(fresh.dtype), slot, 0)

    def reread(layer: LayerCache, dtype: Any) -> LayerCache:
        """The bits of the past as another dtype."""
        past_k, past_v = (jax.lax.bitcast_convert_type(x, dtype) for x in layer[:2])
        return layer._replace(past_k=past_k, past_v=past_v)

    def fill_layer(layer: LayerCache, prompts: tuple[Array, Array]) -> LayerCache:
        k, v = prompts

        def one(i, layer: LayerCache) -> LayerCache:
            past_k, fresh_k = write(layer.past_k, layer.fresh_k, k, 3, slot_I[i], row_I[i])
            past_v, fresh_v = write(layer.past_v, layer.fresh_v, v, 2, slot_I[i], row_I[i])
            return LayerCache(past_k, past_v, fresh_k, fresh_v)

        if not as_bits:
            return jax.lax.fori_loop(0, count, one, layer)
        return reread(jax.lax.fori_loop(0, count, one, reread(layer, jnp.uint16)), dtype)

    # A loop per layer: copies that the compiler makes are of one layer.
    return tuple(fill_layer(*pair) for pair in zip(cache, prompts, strict=True))


def slide(cache: Cache, fill: Array, past: int, row_Y: Array | None = None) -> Cache:
    """Moves the first `fill` fresh columns into a past of `past` columns; the oldest fall out.

    Args:
      row_Y: the slots to keep, in their new order; all of them, as they are, where it is None.
    """
    W, R = widths(cache)
    pad = max(0, past - W)
    start = pad + W + fill - past

    def move(old: Array, new: Array, axis: int) -> tuple[Array, Array]:
        if row_Y is not None:
            old, new = old[row_Y], new[row_Y]
        sizes = [(0, 0)] * 4
        sizes[axis] = (pad, 0)
        both = jnp.concatenate([jnp.pad(old, sizes), new.astype(old.dtype)], axis)
        return jax.lax.dynamic_slice_in_dim(both, start, past, axis), jnp.zeros_like(new)

    layers = []
    for layer in cache:
        past_k, fresh_k = move(layer.past_k, layer.fresh_k, 3)
        past_v, fresh_v = move(layer.past_v, layer.fresh_v, 2)
        layers.append(LayerCache(past_k, past_v, fresh_k, fresh_v))
    return tuple(layers)
