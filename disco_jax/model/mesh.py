"""The device mesh and the one table: parameter -> PartitionSpec.

Axes: `data` (replicas), `fsdp` (parameters and optimizer state sharded, gathered layer by layer),
`tensor` (matrices split within a layer). Rows of a micro-batch are spread over data and fsdp.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXES = ("data", "fsdp", "tensor")
ROWS = P(("data", "fsdp"))  # the leading axis of a micro-batch
HOST_MEMORY = "pinned_host"

# Last component of the parameter's path -> spec. Leaves under `layers` have a leading layer axis.
SPECS = {
    "embed": P("tensor", "fsdp"),
    "head": P("fsdp", "tensor"),
    "final_norm": P(None),
    "attn_norm": P(None, None),
    "mlp_norm": P(None, None),
    "q_norm": P(None, None),
    "k_norm": P(None, None),
    "q": P(None, "fsdp", "tensor"),
    "k": P(None, "fsdp", "tensor"),
    "v": P(None, "fsdp", "tensor"),
    "o": P(None, "tensor", "fsdp"),
    "q_bias": P(None, "tensor"),
    "k_bias": P(None, "tensor"),
    "v_bias": P(None, "tensor"),
    "gate": P(None, "fsdp", "tensor"),
    "up": P(None, "fsdp", "tensor"),
    "down": P(None, "tensor", "fsdp"),
}
# Adapters (lora.py) lie like their matrix: A by its rows, B by its columns.
for _name in ("q", "k", "v", "o", "gate", "up", "down"):
    _, _rows, _columns = SPECS[_name]
    SPECS |= {f"{_name}_lora_a": P(None, _rows, None), f"{_name}_lora_b": P(None, None, _columns)}


def make_mesh(shape: tuple[int, int, int], devices: list | None = None) -> Mesh:
    """A (data, fsdp, tensor) mesh; one entry may be -1, which takes the devices that are left.

    Neighbours in the mesh are neighbours in the machine. Several TPU slices, joined by a network,
    lie along `data`: what crosses it is one reduction of the gradient per micro-batch.

    Raises:
      ValueError: the sizes do not multiply to the number of devices, or `data` does not to that
        of the slices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = list(shape)
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = max(1, len(devices) // max(known, 1))
    if len(sizes) != len(AXES) or math.prod(sizes) != len(devices) or min(sizes) < 1:
        raise ValueError(
            f"mesh={tuple(shape)}: (data, fsdp, tensor) must multiply to the {len(devices)} devices"
            " at hand; -1 for one of them takes what is left"
        )
    return Mesh(_arrange(tuple(sizes), devices), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def one_memory(tree: Any, mesh: Mesh) -> Any:
    """Arrays that are whole on some devices of a CPU, for all devices of a mesh of that CPU.

    They read the same memory: replicas need no copies of their own, and find one copy in the
    processor's cache more often than two.
    """

    def one(x: jax.Array) -> jax.Array:
        host = np.asarray(x.addressable_shards[0].data)  # its memory, not a copy
        views = [jax.device_put(host, device, may_alias=True) for device in mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(x.shape, replicated(mesh), views)

    return jax.tree.map(one, tree)


def _arrange(sizes: tuple[int, ...], devices: list) -> np.ndarray:
    slices = (
        len({getattr(d, "slice_index", 0) for d in devices}) if devices[0].platform == "tpu" else 1
    )
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    data, fsdp, tensor = sizes
    if data % slices:
        raise ValueError(
            f"mesh={sizes}: data={data} must be a multiple of the {slices} slices, which only data"
            " parallelism may span"
        )
    return mesh_utils.create_hybrid_device_mesh(
        (data // slices, fsdp, tensor), (slices, 1, 1), devices, allow_split_physical_axes=True
    )


def shardings(mesh: Mesh, tree: Any, *, on_host: bool = False) -> Any:
    """A NamedSharding for every leaf of a tree whose paths end in parameter names.

    Works for parameters and for the optimizer's moments alike; leaves with other names (step
    counts) are replicated. An axis that does not divide its dimension is left out of the spec.

    Args:
      on_host: in the pinned memory of the devices' hosts instead of on the devices.
    """
    memory = HOST_MEMORY if on_host else None

    def one(path: tuple, leaf: Any) -> NamedSharding:
        name = next((k.key for k in reversed(path) if hasattr(k, "key")), None)
        spec = SPECS.get(name, P()) if np.ndim(leaf) else P()
        sizes = [
            axis if axis and size % mesh.shape[axis] == 0 else None
            for axis, size in zip(spec, np.shape(leaf), strict=False)
        ]
        return NamedSharding(mesh, P(*sizes), memory_kind=memory)

    return jax.tree_util.tree_map_with_path(one, tree)


def bytes_here(tree: Any) -> int:
    """Bytes on each device of a tree of arrays, or of shapes with their places."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
        if x.sharding.memory_kind != HOST_MEMORY
    )


def check_host_memory(mesh: Mesh) -> None:
    """Raises ValueError where the mesh's devices cannot reach pinned memory of their host."""
    device = mesh.devices.flat[0]
    kinds = [memory.kind for memory in device.addressable_memories()]
    if HOST_MEMORY not in kinds:
        raise ValueError(
            f"optimizer.offload=True: {device.platform} devices have no memory {HOST_MEMORY!r}"
            f" (only {', '.join(kinds)}); set it to False"
        )


def constrain(mesh: Mesh, tree: Any) -> Any:
    """Within a compiled program: keeps the tree where the table says, not where XLA likes it."""
    return jax.lax.with_sharding_constraint(tree, shardings(mesh, tree))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def rows(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, ROWS)
