"""Grouped-query attention: packed rows in training, and new tokens over a cache in sampling.

`packed_attention` has one meaning and three forms of computing it:

  xla     everywhere. Queries go in blocks, and the backward pass recomputes a block's scores from
          the saved log-sum-exp, so that no [L, L] array exists, forward or backward.
  splash  TPU: jax.experimental.pallas.ops.tpu.splash_attention, with segment ids.
  triton  GPU: jax.experimental.pallas.ops.gpu.attention, with segment ids. cuDNN's flash attention
          is not offered: through jax.nn.dot_product_attention it takes one length a row but no
          segments, and a mask in their place would be the [L, L] array that flash avoids.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from disco_jax.model.dims import ModelDims

Array = jax.Array

BACKENDS = ("xla", "splash", "triton")
LANES = 128  # both kernels work on blocks of this many tokens, or multiples
_BLOCK = 256  # queries of a block, at most
_STRIPS = 4  # parts of a row; a query sees the keys of its own and of earlier parts only


def choose_backend(name: str, dims: ModelDims, row_tokens: int, mesh: Mesh) -> str:
    """The backend that `model.attention` stands for, checked against sizes and devices.

    Args:
      name: one of `BACKENDS`, or "auto": the kernel of the mesh's platform where the sizes suit
        it, otherwise xla.

    Raises:
      ValueError: a kernel was asked for that the platform lacks or the sizes do not suit.
    """
    platform = mesh.devices.flat[0].platform
    kernel = {"tpu": "splash", "gpu": "triton", "cuda": "triton"}.get(platform, "xla")
    chosen = kernel if name == "auto" else name
    if chosen == "xla":
        return chosen
    tensor = mesh.shape["tensor"]
    faults = {
        f"needs {'a TPU' if chosen == 'splash' else 'a GPU'}, the devices are {platform}": chosen
        != kernel,
        f"needs packing.row_tokens={row_tokens} to be a multiple of {LANES}": row_tokens % LANES,
        f"needs heads of 64 or a multiple of 128, the model's have {dims.head_dim}": dims.head_dim
        != 64 and dims.head_dim % 128,
        f"splits heads over tensor={tensor}, which must divide the model's {dims.heads} query and"
        f" {dims.kv_heads} key/value heads": dims.heads % tensor or dims.kv_heads % tensor,
    }  # fmt: skip
    found = [text for text, present in faults.items() if present]
    if found and name == "auto":
        return "xla"
    if found:
        raise ValueError(f"model.attention={name!r} {found[0]}; 'xla' works everywhere")
    return chosen


def packed_attention(
    q_BLHd: Array,
    k_BLKd: Array,
    v_BLKd: Array,
    segment_BL: Array,
    *,
    backend: str = "xla",
    mesh: Mesh | None = None,
    interpret: bool = False,
) -> Array:
    """Causal attention within the segments of packed rows.

    Args:
      q_BLHd, k_BLKd, v_BLKd: queries, keys, values; H is a multiple of K.
      segment_BL: int32; a token sees itself and the earlier tokens of its own segment.
      backend: a name of `BACKENDS`, as `choose_backend` returns it.
      mesh: a kernel runs once per device, on its share of rows and heads; None: one device.
      interpret: runs a kernel's Python on any device, for tests.

    Returns:
      [B, L, H, d] in the dtype of the queries; scores and softmax are float32.
    """
    if backend == "xla":
        return _blockwise(q_BLHd, k_BLKd, v_BLKd, segment_BL)
    kernel = {"splash": _splash, "triton": _triton}[backend]
    kernel = functools.partial(kernel, interpret=interpret)
    if mesh is not None:
        rows, heads = P(("data", "fsdp")), P(("data", "fsdp"), None, "tensor")
        kernel = jax.shard_map(
            kernel, mesh=mesh, in_specs=(heads, heads, heads, rows), out_specs=heads,
            check_vma=False,
        )  # fmt: skip
    return kernel(q_BLHd, k_BLKd, v_BLKd, segment_BL)


def _splash(q_BLHd, k_BLKd, v_BLKd, segment_BL, *, interpret: bool) -> Array:
    # Pallas for TPU is imported where it is used: it is slow to import, and moves between releases
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    L, H, d = q_BLHd.shape[1:]
    block = next(size for size in (512, 256, LANES) if L % size == 0)
    names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    kernel = splash.make_splash_mha_single_device(
        splash.MultiHeadMask([splash.CausalMask((L, L))] * H),
        block_sizes=splash.BlockSizes(**{f"block_{name}": block for name in names}),
        interpret=interpret,
    )

    def one_row(q_LHd: Array, k_LKd: Array, v_LKd: Array, segment_L: Array) -> Array:
        q, k, v = (x.swapaxes(0, 1) for x in (q_LHd * d**-0.5, k_LKd, v_LKd))
        return kernel(q, k, v, splash.SegmentIds(segment_L, segment_L)).swapaxes(0, 1)

    return jax.vmap(one_row)(q_BLHd, k_BLKd, v_BLKd, segment_BL)


def _triton(q_BLHd, k_BLKd, v_BLKd, segment_BL, *, interpret: bool) -> Array:
    from jax.experimental.pallas.ops.gpu import attention as triton

    group = q_BLHd.shape[2] // k_BLKd.shape[2]
    k_BLHd, v_BLHd = (jnp.repeat(x, group, axis=2) for x in (k_BLKd, v_BLKd))
    scale = q_BLHd.shape[-1] ** -0.5
    return triton.mha(
        q_BLHd, k_BLHd, v_BLHd, segment_BL, sm_scale=scale, causal=True, interpret=interpret
    )


class _Strip(NamedTuple):
    """Queries [start, stop), in blocks of `size`; they see keys [0, stop)."""

    start: int
    stop: int
    size: int

    def positions(self) -> Array:
        """[blocks, size]: the positions of the queries."""
        return jnp.arange(self.start, self.stop).reshape(-1, self.size)


def _strips(length: int) -> tuple[int, list[_Strip]]:
    """The padded length of a row, and its parts."""
    parts = min(_STRIPS, -(-length // 128))
    blocks = -(-length // (parts * _BLOCK))
    size = -(-length // (parts * blocks))
    step = blocks * size
    return parts * step, [_Strip(i * step, (i + 1) * step, size) for i in range(parts)]


def _blockwise(q_BLHd: Array, k_BLKd: Array, v_BLKd: Array, segment_BL: Array) -> Array:
    B, L, H, d = q_BLHd.shape
    K = k_BLKd.shape[2]
    padding = _strips(L)[0] - L  # of segment 0: padding tokens see one another, no row is empty

    def by_head(x_BLHd: Array, *heads: int) -> Array:
        x_BLHd = jnp.pad(x_BLHd, ((0, 0), (0, padding), (0, 0), (0, 0)))
        return jnp.moveaxis(x_BLHd.reshape(B, L + padding, *heads, d), 1, -2)

    segment_BL = jnp.pad(segment_BL, ((0, 0), (0, padding)))
    q_BKGLd = by_head(q_BLHd, K, H // K)
    out_BKGLd = _flash(q_BKGLd, by_head(k_BLKd, K), by_head(v_BLKd, K), segment_BL)
    return jnp.moveaxis(out_BKGLd, -2, 1)[:, :L].reshape(B, L, H, d)


@jax.custom_vjp
def _flash(q_BKGLd: Array, k_BKLd: Array, v_BKLd: Array, segment_BL: Array) -> Array:
    return _flash_forward(q_BKGLd, k_BKLd, v_BKLd, segment_BL)[0]


def _dot(a: Array, b: Array, axes: str) -> Array:
    return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)


def _scores(q_BKGqd: Array, k_BKcd: Array, segment_BL: Array, position_q: Array) -> Array:
    """Float32 scores [B, K, G, q, c] of some queries, minus infinity at unseen keys."""
    keys = k_BKcd.shape[2]
    segment_Bq = segment_BL[:, position_q]
    seen_Bqc = segment_Bq[:, :, None] == segment_BL[:, None, :keys]
    seen_Bqc &= position_q[:, None] >= jnp.arange(keys)
    scores = _dot(q_BKGqd, k_BKcd, "bkgqd,bkcd->bkgqc") * q_BKGqd.shape[-1] ** -0.5
    return jnp.where(seen_Bqc[:, None, None], scores, -jnp.inf)


def _blocks(strip: _Strip, *arrays_BKGL: Array) -> tuple[Array, ...]:
    """The strip's queries as a leading axis of blocks: positions, then [blocks, B, K, G, q, ...]"""

    def split(x: Array) -> Array:
        x = x[:, :, :, strip.start : strip.stop]
        return jnp.moveaxis(x.reshape(*x.shape[:3], -1, strip.size, *x.shape[4:]), 3, 0)

    return strip.positions(), *map(split, arrays_BKGL)


def _join(x_MBKGq: Array) -> Array:
    """[blocks, B, K, G, q, ...] -> [B, K, G, blocks * q, ...]"""
    x = jnp.moveaxis(x_MBKGq, 0, 3)
    return x.reshape(*x.shape[:3], -1, *x.shape[5:])


def _flash_forward(q_BKGLd, k_BKLd, v_BKLd, segment_BL):
    parts = []
    for strip in _strips(q_BKGLd.shape[3])[1]:
        k_BKcd, v_BKcd = k_BKLd[:, :, : strip.stop], v_BKLd[:, :, : strip.stop]

        def one(block, k_BKcd=k_BKcd, v_BKcd=v_BKcd):
            position_q, q_BKGqd = block
            scores = _scores(q_BKGqd, k_BKcd, segment_BL, position_q)
            top = jnp.max(scores, axis=-1, keepdims=True)
            p = jnp.exp(scores - top)
            total = jnp.sum(p, axis=-1, keepdims=True)
            out = _dot(p.astype(q_BKGqd.dtype), v_BKcd, "bkgqc,bkcd->bkgqd") / total
            return out.astype(q_BKGqd.dtype), (top + jnp.log(total))[..., 0]

        out, lse = jax.lax.map(one, _blocks(strip, q_BKGLd))
        parts.append((_join(out), _join(lse)))
    out_BKGLd, lse_BKGL = (jnp.concatenate(x, axis=3) for x in zip(*parts, strict=True))
    return out_BKGLd, (q_BKGLd, k_BKLd, v_BKLd, segment_BL, out_BKGLd, lse_BKGL)


def _flash_backward(saved: tuple, slope_BKGLd: Array):
    q_BKGLd, k_BKLd, v_BKLd, segment_BL, out_BKGLd, lse_BKGL = saved
    dtype, scale = q_BKGLd.dtype, q_BKGLd.shape[-1] ** -0.5
    # sum_c p_c dp_c of a query, without its row of p
    mean_BKGL = _dot(slope_BKGLd, out_BKGLd, "bkgld,bkgld->bkgl")
    dk_BKLd, dv_BKLd = (jnp.zeros(x.shape, jnp.float32) for x in (k_BKLd, v_BKLd))
    dq_parts = []
    for strip in _strips(q_BKGLd.shape[3])[1]:
        k_BKcd, v_BKcd = k_BKLd[:, :, : strip.stop], v_BKLd[:, :, : strip.stop]

        def one(carry, block, k_BKcd=k_BKcd, v_BKcd=v_BKcd):
            dk_BKcd, dv_BKcd = carry
            position_q, q, slope, lse, mean = block
            p = jnp.exp(_scores(q, k_BKcd, segment_BL, position_q) - lse[..., None])
            dv_BKcd += _dot(p.astype(dtype), slope, "bkgqc,bkgqd->bkcd")
            dp = _dot(slope, v_BKcd, "bkgqd,bkcd->bkgqc")
            ds = (p * (dp - mean[..., None]) * scale).astype(dtype)
            dk_BKcd += _dot(ds, q, "bkgqc,bkgqd->bkcd")
            return (dk_BKcd, dv_BKcd), _dot(ds, k_BKcd, "bkgqc,bkcd->bkgqd").astype(dtype)

        zeros = jnp.zeros(k_BKcd.shape, jnp.float32)
        blocks = _blocks(strip, q_BKGLd, slope_BKGLd, lse_BKGL, mean_BKGL)
        (dk_BKcd, dv_BKcd), dq = jax.lax.scan(one, (zeros, zeros), blocks)
        dk_BKLd = dk_BKLd.at[:, :, : strip.stop].add(dk_BKcd)
        dv_BKLd = dv_BKLd.at[:, :, : strip.stop].add(dv_BKcd)
        dq_parts.append(_join(dq))
    dq_BKGLd = jnp.concatenate(dq_parts, axis=3)
    return dq_BKGLd, dk_BKLd.astype(dtype), dv_BKLd.astype(dtype), None


_flash.defvjp(_flash_forward, _flash_backward)


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
