"""How many of a process's slots fit: the arithmetic of a device's memory, printed at the start."""

import os
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims

GIB, MIB = 2**30, 2**20
KEPT_FREE = 0.15  # of what there is: activations of a prefill, fragmentation, the runtime itself


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


def share(slots: int, processes: int, mesh: Mesh) -> int:
    """A process's share of the slots of all processes.

    Args:
      mesh: the process's own.

    Raises:
      ValueError: they do not divide evenly over the processes, and the replicas of each.
    """
    replicas = mesh.shape["data"] * mesh.shape["fsdp"]
    every = processes * replicas
    if slots % every:
        below = slots // every * every
        near = f"{below} or {below + every}" if below else str(every)
        raise ValueError(
            f"rollout.slots={slots} must be a multiple of {every}: {processes} processes of"
            f" {replicas} devices (data x fsdp) each share the slots evenly; set it to {near}"
        )
    return slots // processes


def slot_bytes(dims: ModelDims, columns: int, itemsize: int) -> int:
    """Bytes of one slot at its longest: its cache twice (it is copied when it moves), and the
    logits of one token with what sampling makes of them."""
    cache = 2 * dims.layers * dims.kv_heads * dims.head_dim * columns * itemsize
    return 2 * cache + 4 * dims.vocab * 4


def fit_slots(
    dims: ModelDims, mesh: Mesh, *, columns: int, dtype: Any, free: int, beside: int, most: int
) -> Fit:
    """The most slots that fit beside the training state and the sampler's copy of the weights.

    Args:
      mesh: of the process whose slots they are.
      columns: of the cache at its widest, fresh ones included.
      free: bytes of one device, before anything is there (`free_bytes`).
      beside: those of them that the training state takes; 0 where nothing is trained.
      most: slots that there is work for.

    Returns:
      a multiple of the replicas; powers of two, and three quarters of them, are preferred.

    Raises:
      ValueError: not one slot per replica fits; the message has the arithmetic.
    """
    shapes = jax.eval_shape(lambda key: transformer.init(key, dims), jax.random.key(0))
    weights = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    itemsize = np.dtype(dtype).itemsize
    replicas = mesh.shape["data"] * mesh.shape["fsdp"]
    copy = itemsize * weights
    room = int(free * (1 - KEPT_FREE)) - beside - copy
    each = slot_bytes(dims, columns, itemsize)
    why = (
        f"{free / GIB:.2f} GiB free per device, less {KEPT_FREE:.0%}, less"
        f" {beside / GIB:.2f} GiB training state and {copy / GIB:.2f} GiB weights ="
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
