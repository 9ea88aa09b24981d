"""Checkpoints in and out: Hugging Face folders both ways (out: `export.py`), GGUF files in.

Every tensor is accounted for: a missing, an unexpected or a misshapen one is an error that lists
them all, before anything is read. Tensors then travel one at a time: each process reads the slices
of its own devices in the dtype of the file, and the devices cast, transpose and put them into the
leaf that stacks the layers, in place.
"""

import functools
import itertools
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from disco_jax.model import folders
from disco_jax.model.dims import ModelDims
from disco_jax.model.export import save
from disco_jax.model.folders import Stored, read_dims
from disco_jax.model.layout import TOP, OnTensor, Place, leaf_at, places, shapes, tally
from disco_jax.model.tensor_files import DTYPES
from disco_jax.model.transformer import Params

__all__ = ["load", "read_dims", "save", "shapes"]

# Buffers that some exports carry and no computation here needs.
IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)


def load(
    folder: str | os.PathLike,
    dims: ModelDims,
    shardings: Any = None,
    *,
    dtype: Any = jnp.float32,
    on_tensor: OnTensor | None = None,
) -> Params:
    """Parameters in the layout of `transformer.init`, each leaf where its sharding says.

    Beside the shards themselves, one tensor (of one layer) at a time is in memory. With several
    processes, all of them call this on a folder that each can read.

    Args:
      folder: of the checkpoint, or the path of a GGUF file.
      dims: its dimensions, from `read_dims`.
      shardings: a tree like the parameters (`mesh.shardings(mesh, shapes(dims))`); None puts all
        of it on the first device.
      dtype: of the parameters, whatever that of the file.
      on_tensor: called after each tensor.

    Raises:
      FileNotFoundError: no weights in the folder, or a file that its index names is not there.
      ValueError: tensors missing, unexpected or misshapen, all of them listed; damaged files.
    """
    stored, wanted = folders.stored_tensors(folder, dims), places(dims)
    tree, dtype = shapes(dims), np.dtype(dtype)
    _check(folder, stored, wanted, dims.tied)
    count = tally(on_tensor, {place.name: stored[place.name].nbytes for place in wanted})
    params: Params = {"layers": {}}
    for path, parts in itertools.groupby(wanted, key=lambda place: place.path):
        if shardings is None:
            sharding = SingleDeviceSharding(jax.devices()[0])
        else:
            sharding = leaf_at(shardings, path)
        leaf = None
        for place in parts:
            if place.layer == 0:
                leaf = jnp.zeros(leaf_at(tree, path).shape, dtype, device=sharding)
            tensor = _read(stored[place.name], place.sharding(sharding))
            leaf = _put(leaf, tensor, place.layer, place.transposed, dtype, sharding)
            leaf.block_until_ready()  # or the host would run ahead, holding what it has read
            count(place.name)
        (params if len(path) == 1 else params["layers"])[path[-1]] = leaf
    return params


def _read(tensor: Stored, sharding: Sharding) -> jax.Array:
    """The tensor, each device's slice read from the file; once, where several hold the same."""

    @functools.cache
    def part(bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
        return tensor.read(tuple(slice(*pair) for pair in bounds))

    def callback(index: tuple[slice, ...]) -> np.ndarray:
        return part(tuple(s.indices(n)[:2] for s, n in zip(index, tensor.shape, strict=True)))

    return jax.make_array_from_callback(tensor.shape, sharding, callback, dtype=tensor.dtype)


@functools.partial(
    jax.jit, static_argnames=("transposed", "dtype", "sharding"), donate_argnames="leaf"
)
def _put(
    leaf: jax.Array | None,
    tensor: jax.Array,
    layer: int | None,
    transposed: bool,
    dtype: np.dtype,
    sharding: Sharding,
) -> jax.Array:
    """Our leaf with the tensor in it: as one of its layers, or all of it."""
    tensor = (tensor.T if transposed else tensor).astype(dtype)
    if layer is not None:
        tensor = jax.lax.dynamic_update_index_in_dim(leaf, tensor, layer, 0)
    return jax.lax.with_sharding_constraint(tensor, sharding)


def _check(
    folder: str | os.PathLike, stored: Mapping[str, Stored], wanted: list[Place], tied: bool
) -> None:
    """Raises ValueError, listing every tensor that is not as the dimensions say."""
    problems = []
    for name, shape, *_ in wanted:
        tensor = stored.get(name)
        if tensor is None:
            problems.append(f"{name}: missing")
        elif tensor.shape != shape:
            problems.append(f"{name}: shape {tensor.shape}, config.json implies {shape}")
        elif tensor.dtype is None:
            problems.append(f"{name}: dtype {tensor.code} is not one of {', '.join(DTYPES)}")
    ignored = IGNORED_SUFFIXES + ((TOP["head"][0],) if tied else ())
    extra = stored.keys() - {place.name for place in wanted}
    problems += [f"{name}: unexpected" for name in sorted(extra) if not name.endswith(ignored)]
    if problems:
        listed = "\n  ".join(problems)
        raise ValueError(f"{folder}: the tensors do not match config.json:\n  {listed}")
