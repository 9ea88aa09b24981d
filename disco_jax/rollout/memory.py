"""How many slots fit: the arithmetic of the device's memory, to be printed at the start."""

import os
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims

GIB, MIB = 2**30, 2**20
KEPT_FREE = 0.15  # of what there is: activations of a prefill, fragmentation, the runtime itself
TRAINED_BYTES = 12  # per parameter: float32 master and two moments, sharded over the mesh


class Fit(NamedTuple):
    """A number of slots, and the sentence that says why."""

    slots: int
    why: str


def free_bytes(mesh: Mesh) -> int:
    """Memory of one device that is not in use: of the accelerator, or a share of the host's."""
    device = mesh.local_devices[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return pages // len(jax.local_devices())


def slot_bytes(dims: ModelDims, columns: int, itemsize: int) -> int:
    """Bytes of one slot at its longest: its cache twice (it is copied when it moves), and the
    logits of one token with what sampling makes of them."""
    cache = 2 * dims.layers * dims.kv_heads * dims.head_dim * columns * itemsize
    return 2 * cache + 4 * dims.vocab * 4


def fit_slots(
    dims: ModelDims, mesh: Mesh, *, columns: int, dtype: Any, free: int, most: int
) -> Fit:
    """The most slots that fit beside the training state and the sampler's copy of the weights.

    Args:
      columns: of the cache at its widest, fresh ones included.
      free: bytes of one device, before the training state is there (`free_bytes`).
      most: slots that there is work for.

    Returns:
      a multiple of the replicas; powers of two, and three quarters of them, are preferred.

    Raises:
      ValueError: not one slot per replica fits; the message has the arithmetic.
    """
    shapes = jax.eval_shape(lambda key: transformer.init(key, dims), jax.random.key(0))
    weights = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    itemsize = np.dtype(dtype).itemsize
    shards = mesh.shape["fsdp"] * mesh.shape["tensor"]
    replicas = mesh.shape["data"] * mesh.shape["fsdp"]
    trained, copy = TRAINED_BYTES * weights // shards, itemsize * weights
    room = int(free * (1 - KEPT_FREE)) - trained - copy
    each = slot_bytes(dims, columns, itemsize)
    why = (
        f"{free / GIB:.2f} GiB free per device, less {KEPT_FREE:.0%}, less"
        f" {trained / GIB:.2f} GiB training state and {copy / GIB:.2f} GiB weights ="
        f" {room / GIB:.2f} GiB; a slot of {columns} columns takes {each / MIB:.1f} MiB"
    )
    local = room // each
    if local < 1:
        raise ValueError(f"rollout.slots=0: not one slot fits: {why}")
    wanted = -(-most // replicas)
    local = min(local, wanted)
    if local < wanted:
        power = 1 << local.bit_length() - 1
        local = power * 3 // 2 if power * 3 // 2 <= local else power
    slots = local * replicas
    return Fit(slots, f"{slots} slots ({local} on each of {replicas} replicas): {why}")
