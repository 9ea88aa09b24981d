"""One decoder for Llama, Qwen2 and Qwen3: pre-norm blocks, rotary positions, gated MLP.

`Block` is the only copy of the layer's mathematics. Training scans it over parameters stacked
on a leading layer axis (one compiled body, uniform sharding); sampling calls it layer by layer
on unstacked parameters, with the key/value cache passed in and out. What differs between the
two, how a query finds its keys, is the `attend` argument.

Parameters are a nested dict:
  embed [V, D]; final_norm [D]; head [D, V] (absent when tied); layers: each leaf stacked,
  {attn_norm, mlp_norm [n, D]; q [n, D, H*d]; k, v [n, D, K*d]; o [n, H*d, D];
   q_bias, k_bias, v_bias (qwen2); q_norm, k_norm [n, d] (qwen3);
   gate, up [n, D, F]; down [n, F, D]}
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from disco_jax.model import mesh as meshes
from disco_jax.model.attention import packed_attention
from disco_jax.model.dims import ModelDims
from disco_jax.model.linear import linear

Array = jax.Array
Params = dict[str, Any]
# (q_BLHd, k_BLKd, v_BLKd, cache) -> (out_BLHd, cache)
Attend = Callable[[Array, Array, Array, Any], tuple[Array, Any]]

REMAT = {
    "none": None,  # keep every activation
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # keep matmul outputs
    "full": jax.checkpoint_policies.nothing_saveable,  # keep the layer inputs only
}


def rms_norm(x_BLD: Array, scale_D: Array, eps: float) -> Array:
    """x / rms(x) * scale over the last axis, computed in float32."""
    x32 = x_BLD.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return (normed * scale_D).astype(x_BLD.dtype)


def rope_tables(position_BL: Array, dims: ModelDims) -> tuple[Array, Array]:
    """cos, sin of the rotary angles, float32 [B, L, d/2] (bfloat16 angles are useless past 256)."""
    exponent = jnp.arange(0, dims.head_dim, 2, dtype=jnp.float32) / dims.head_dim
    frequency = 1.0 / (dims.rope_theta**exponent)
    if scaling := dims.rope_scaling:  # Llama 3.1: stretch the slow rotations, keep the fast ones
        turns = scaling.original_max_position * frequency / (2 * jnp.pi)
        smooth = (turns - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        smooth = jnp.clip(smooth, 0.0, 1.0)
        frequency = frequency * (smooth + (1.0 - smooth) / scaling.factor)
    angle = position_BL[..., None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BLHd: Array, cos_BLd: Array, sin_BLd: Array) -> Array:
    """Rotates the two halves of each head (the pairing of Hugging Face checkpoints)."""
    a, b = jnp.split(x_BLHd.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos_BLd[:, :, None], sin_BLd[:, :, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BLHd.dtype)


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    dims: ModelDims
    dtype: Any

    @nn.compact
    def __call__(self, x_BLD: Array, cos: Array, sin: Array, attend: Attend, cache: Any):
        dims, (B, L, _) = self.dims, x_BLD.shape
        H, K, d, D, F = dims.heads, dims.kv_heads, dims.head_dim, dims.width, dims.mlp

        def times(x: Array, name: str, columns: int, biased: bool = False) -> Array:
            rows = x.shape[-1]
            weight = self.param(
                name, nn.initializers.normal(rows**-0.5), (rows, columns), jnp.float32
            )
            bias = None
            if biased:
                bias = self.param(f"{name}_bias", nn.initializers.zeros, (columns,), jnp.float32)
            y = linear(x, weight, bias)
            if self.has_variable("params", f"{name}_lora_a"):  # see lora.py
                a, b = (self.get_variable("params", f"{name}_lora_{c}") for c in "ab")
                y = y + linear(linear(x, a), b)
            return y

        def scale(name: str, size: int) -> Array:
            return self.param(name, nn.initializers.ones, (size,), jnp.float32)

        def project(name: str, heads: int) -> Array:
            return times(h, name, heads * d, dims.qkv_bias).reshape(B, L, heads, d)

        h = rms_norm(x_BLD, scale("attn_norm", D), dims.norm_eps)
        q, k, v = project("q", H), project("k", K), project("v", K)
        if dims.qk_norm:
            q = rms_norm(q, scale("q_norm", d), dims.norm_eps)
            k = rms_norm(k, scale("k_norm", d), dims.norm_eps)
        out, cache = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, cache)
        x_BLD = x_BLD + times(out.reshape(B, L, H * d), "o", D)

        h = rms_norm(x_BLD, scale("mlp_norm", D), dims.norm_eps)
        gated = jax.nn.silu(times(h, "gate", F)) * times(h, "up", F)
        return x_BLD + times(gated, "down", D), cache


def init(key: Array, dims: ModelDims) -> Params:
    """Random float32 parameters in the layout of the module docstring."""
    key_embed, key_head, key_layers = jax.random.split(key, 3)
    x = jnp.zeros((1, 1, dims.width))
    cos, sin = rope_tables(jnp.zeros((1, 1), jnp.int32), dims)
    block = Block(dims, jnp.float32)

    def one_layer(key: Array) -> Params:
        attend = lambda q, k, v, cache: (q, cache)  # noqa: E731  shapes only
        return block.init(key, x, cos, sin, attend, None)["params"]

    params = {
        "embed": jax.random.normal(key_embed, (dims.vocab, dims.width)) * dims.width**-0.5,
        "final_norm": jnp.ones(dims.width),
        "layers": jax.vmap(one_layer)(jax.random.split(key_layers, dims.layers)),
    }
    if not dims.tied:
        shape = (dims.width, dims.vocab)
        params["head"] = jax.random.normal(key_head, shape) * dims.width**-0.5
    return params


def head_weights(params: Params, dims: ModelDims) -> Array:
    """The output head [D, V]; the transposed embedding when tied."""
    return params["embed"].T if dims.tied else params["head"]


def hidden_states(
    params: Params,
    dims: ModelDims,
    tokens_BL: Array,
    position_BL: Array,
    segment_BL: Array,
    *,
    dtype: Any,
    remat: str,
    scan: bool = True,
    attention: str = "xla",
    mesh: Mesh | None = None,
) -> Array:
    """Final hidden states of packed rows, [B, L, D] in `dtype`, after the last norm.

    Args:
      params: as `init` makes them.
      tokens_BL, position_BL, segment_BL: int32; positions restart in every segment, segment 0
        is padding.
      dtype: of the activations and matrix products; parameters stay float32.
      remat: a key of `REMAT`: what the backward pass keeps.
      scan: one compiled layer for all; otherwise layer after layer, which compiles longer and
        runs faster on CPU.
      attention: a backend of `packed_attention`.
      mesh: rows live on data and fsdp, in every layer. Without it the compiler is free to split
        the width instead, as the embedding table is, and then reduces every layer's activations
        over all devices (seen for v5e:4x4: 2.6 GB per layer and matrix).
    """

    def placed(x_BLD: Array) -> Array:
        if mesh is None:
            return x_BLD
        return jax.lax.with_sharding_constraint(x_BLD, meshes.rows(mesh))

    def attend(q, k, v, cache):
        return packed_attention(q, k, v, segment_BL, backend=attention, mesh=mesh), cache

    cos, sin = rope_tables(position_BL, dims)
    block = Block(dims, dtype)

    def layer(x_BLD: Array, layer_params: Params):
        x_BLD, _ = block.apply({"params": layer_params}, placed(x_BLD), cos, sin, attend, None)
        return placed(x_BLD), None

    if remat != "none":
        layer = jax.checkpoint(layer, policy=REMAT[remat], prevent_cse=not scan)
    # Rows are looked up before they are cast: the table's gradient adds up in float32.
    x_BLD = placed(params["embed"][tokens_BL].astype(dtype))
    if scan:
        x_BLD, _ = jax.lax.scan(layer, x_BLD, params["layers"])
    else:
        for layer_params in _split_layers(params["layers"], dims.layers):
            x_BLD, _ = layer(x_BLD, layer_params)
    return placed(rms_norm(x_BLD, params["final_norm"], dims.norm_eps))


def _split_layers(stacked: Params, layers: int) -> list[Params]:
    """One dict per layer. A split, since its gradient is one concatenation of the layers'."""
    parts = jax.tree.map(lambda x: jax.lax.split(x, (1,) * layers), stacked)
    is_parts = lambda x: isinstance(x, (list, tuple))  # noqa: E731
    return [jax.tree.map(lambda x, i=i: x[i][0], parts, is_leaf=is_parts) for i in range(layers)]
