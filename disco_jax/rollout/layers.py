"""The decoder as the sampler runs it: layer by layer on its own copy of the parameters.

The mathematics is `transformer.Block`, the same as in training. What differs is the arrangement:
one dict per layer in place of stacked arrays, since a scan over layers that carries a cache was 2.2
times slower on CPU; compilation is longer, once.
"""

from typing import Any

import jax
import jax.numpy as jnp

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.model.transformer import Attend, Params

Array = jax.Array


def check_params(params: Params, dims: ModelDims) -> None:
    """Raises ValueError listing parameters that are missing, unexpected or misshapen."""
    expected = jax.eval_shape(lambda key: transformer.init(key, dims), jax.random.key(0))

    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(p, simple=True, separator="."): x.shape for p, x in leaves}

    wanted, found = shapes(expected), shapes(params)
    problems = [
        f"{name}: {found.get(name, 'missing')}, expected {wanted.get(name, 'no such parameter')}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    if problems:
        raise ValueError("parameters do not fit the model:\n  " + "\n  ".join(problems))


def unstack(params: Params, dims: ModelDims, dtype: Any, own_head: bool) -> Params:
    """The sampler's copy: one dict per layer (a tuple), matrices cast to `dtype`.

    Norm scales stay float32, as in training. Made once per policy version.

    Args:
      own_head: where the head is the transposed embedding, makes it a matrix of its own: XLA:CPU
        takes four times as long to multiply by a transposed bfloat16 matrix.
    """

    def cast(path, x: Array) -> Array:
        return x if "norm" in jax.tree_util.keystr(path) else x.astype(dtype)

    params = jax.tree_util.tree_map_with_path(cast, params)
    layers = tuple(jax.tree.map(lambda x, i=i: x[i], params["layers"]) for i in range(dims.layers))
    if own_head:
        params = {**params, "head": transformer.head_weights(params, dims)}
    return {**params, "layers": layers}


def extend(
    params: Params,
    dims: ModelDims,
    tokens_SL: Array,
    angles: tuple[Array, Array],
    cache: tuple,
    attend: Attend,
    *,
    dtype: Any,
) -> tuple[Array, tuple]:
    """Runs L new tokens of every slot through the layers.

    Args:
      params: from `unstack`.
      tokens_SL: int32.
      angles: cos and sin of their positions, [S, L, d/2] (`transformer.rope_tables`).
      cache: one entry per layer, handed to `attend` and replaced by what it returns.

    Returns:
      hidden states after the last norm [S, L, D], and the new cache.
    """
    block = transformer.Block(dims, dtype)
    x_SLD = params["embed"].astype(dtype)[tokens_SL]
    new_cache = []
    for layer_params, layer_cache in zip(params["layers"], cache, strict=True):
        x_SLD, layer_cache = block.apply(
            {"params": layer_params}, x_SLD, *angles, attend, layer_cache
        )
        new_cache.append(layer_cache)
    return transformer.rms_norm(x_SLD, params["final_norm"], dims.norm_eps), tuple(new_cache)


def logits(params: Params, hidden_SD: Array, dims: ModelDims) -> Array:
    """Float32 [S, V]."""
    head_DV = params["head"] if "head" in params else transformer.head_weights(params, dims)
    return jnp.dot(hidden_SD, head_DV, preferred_element_type=jnp.float32)
