"""Parameters back into a Hugging Face checkpoint: config.json, safetensors, tokenizer.

Tensors leave one at a time. With several processes all of them take part, since each holds a part
of every parameter, and the first one writes.
"""

import contextlib
import errno
import functools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from disco_jax.model import dims as model_dims
from disco_jax.model import folders
from disco_jax.model.dims import ModelDims
from disco_jax.model.layout import OnTensor, Place, leaf_at, places, shapes, tally
from disco_jax.model.tensor_files import DTYPES, TensorWriter
from disco_jax.model.transformer import Params

# What belongs to a tokenizer in a checkpoint's folder, to be copied beside other weights.
TOKENIZER_FILES = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "generation_config.json",
)
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")  # of config.json, copied too
FILE_BYTES = 5_000_000_000  # more than this goes into several files
SPARE_BYTES = 64 << 20  # left free on the disk, for the small files and the file system's own


def save(
    folder: str | os.PathLike,
    dims: ModelDims,
    params: Params,
    tokenizer_from: str | os.PathLike | None = None,
    *,
    dtype: str = "float32",
    file_bytes: int = FILE_BYTES,
    on_tensor: OnTensor | None = None,
) -> None:
    """Writes a checkpoint that Hugging Face libraries and `weights.load` read.

    It is written beside its place and renamed, so a folder of that name is never half a
    checkpoint; an older one is removed last.

    Args:
      folder: where to.
      dims, params: as `weights.load` makes them, however sharded.
      tokenizer_from: the checkpoint whose tokenizer and token ids belong to these parameters.
      dtype: of all tensors, "float32", "bfloat16" or "float16"; or "source", of each tensor as in
        `tokenizer_from`, so that a tensor that was not trained is identical to the byte.
      file_bytes: the tensors of one file; where there are more, several files and an index.
      on_tensor: called after each tensor.

    Raises:
      OSError: the disk has not enough room, or cannot be written to.
      ValueError: parameters that do not fit the dimensions or are not finite in the dtype, or
        an unknown dtype.
    """
    wanted = places(dims)
    _check(params, dims)
    params = jax.tree.map(jnp.asarray, params)
    dtypes = _dtypes(dtype, tokenizer_from, dims, wanted)
    sizes = {p.name: math.prod(p.shape) * dtypes[p.name].itemsize for p in wanted}
    files = _split(wanted, sizes, file_bytes)
    count = tally(on_tensor, sizes)
    folder = pathlib.Path(folder)
    tmp = folder.with_name(folder.name + ".tmp")
    _on_first(lambda: _begin(tmp, sum(sizes.values())))
    try:
        for file, parts in files.items():
            with _writer(tmp / file, {p.name: (p.shape, dtypes[p.name]) for p in parts}) as write:
                for place in parts:
                    write(_take(leaf_at(params, place.path), place, dtypes[place.name]))
                    count(place.name)
        _on_first(lambda: _finish(tmp, folder, dims, dtypes, files, sizes, tokenizer_from))
    except BaseException:
        if jax.process_index() == 0:
            shutil.rmtree(tmp, ignore_errors=True)
        raise


def _check(params: Params, dims: ModelDims) -> None:
    def flat(tree) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(path): np.shape(leaf) for path, leaf in leaves}

    have, want = flat(params), flat(shapes(dims))
    if have != want:
        wrong = [
            f"{name}: {have.get(name, 'missing')}, should be {want.get(name, 'absent')}"
            for name in sorted(have.keys() | want.keys())
            if have.get(name) != want.get(name)
        ]
        raise ValueError("the parameters do not fit the dimensions:\n  " + "\n  ".join(wrong))


def _dtypes(
    dtype: str, source: str | os.PathLike | None, dims: ModelDims, wanted: list[Place]
) -> dict[str, np.dtype]:
    """Name of tensor -> its dtype in the files."""
    if dtype == "source":
        if source is None:
            raise ValueError("dtype='source' needs the checkpoint that the parameters came from")
        stored = folders.stored_tensors(source, dims)
        found = {place.name: getattr(stored.get(place.name), "dtype", None) for place in wanted}
        if lacking := [name for name, stored_dtype in found.items() if stored_dtype is None]:
            raise ValueError(f"dtype='source': {source} gives none for {', '.join(lacking)}")
        return found
    known = {str(d): d for d in DTYPES.values()}
    if dtype not in known:
        raise ValueError(f"dtype={dtype!r}: one of {', '.join(known)}, or source")
    return {place.name: known[dtype] for place in wanted}


def _split(
    wanted: list[Place], sizes: Mapping[str, int], file_bytes: int
) -> dict[str, list[Place]]:
    """File name -> its tensors, in order; a tensor larger than `file_bytes` has its own file."""
    groups: list[list[Place]] = [[]]
    filled = 0
    for place in wanted:
        if groups[-1] and filled + sizes[place.name] > file_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(place)
        filled += sizes[place.name]
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    many = f"of-{len(groups):05d}.safetensors"
    return {f"model-{i:05d}-{many}": group for i, group in enumerate(groups, start=1)}


def _begin(tmp: pathlib.Path, needed: int) -> None:
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir(parents=True)
    free = shutil.disk_usage(tmp).free
    if free < needed + SPARE_BYTES:
        tmp.rmdir()
        raise OSError(
            errno.ENOSPC,
            f"the checkpoint takes {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free; make"
            " room, or export to another disk or in bfloat16",
            str(tmp.parent),
        )


@contextlib.contextmanager
def _writer(path: pathlib.Path, tensors: Mapping[str, tuple[tuple[int, ...], np.dtype]]):
    """Gives the function that writes the next tensor; only the first process's does."""
    if jax.process_index() != 0:
        yield lambda tensor: None
        return
    with TensorWriter(path, tensors) as writer:
        yield writer.write


def _take(leaf: jax.Array, place: Place, dtype: np.dtype) -> np.ndarray:
    """One tensor of theirs, gathered from all devices.

    Raises:
      ValueError: it is not finite in that dtype.
    """
    sharding = place.sharding(leaf.sharding)
    tensor, finite = _gather(leaf, place.layer, place.transposed, dtype, sharding)
    if not finite:
        raise ValueError(f"{place.name} holds values that are not finite in {dtype}: not exported")
    return np.asarray(tensor.addressable_data(0))


@functools.partial(jax.jit, static_argnames=("transposed", "dtype", "sharding"))
def _gather(
    leaf: jax.Array, layer: int | None, transposed: bool, dtype: np.dtype, sharding: Sharding
) -> tuple[jax.Array, jax.Array]:
    if layer is not None:
        leaf = jax.lax.dynamic_index_in_dim(leaf, layer, 0, keepdims=False)
    tensor = (leaf.T if transposed else leaf).astype(dtype)
    # Where the parts lie first, and the whole of this tensor after: never the whole of the leaf.
    tensor = jax.lax.with_sharding_constraint(tensor, sharding)
    finite = jnp.isfinite(tensor).all()
    if isinstance(sharding, NamedSharding):
        everywhere = NamedSharding(sharding.mesh, P())
        tensor, finite = jax.lax.with_sharding_constraint((tensor, finite), everywhere)
    return tensor, finite


def _finish(
    tmp: pathlib.Path,
    folder: pathlib.Path,
    dims: ModelDims,
    dtypes: Mapping[str, np.dtype],
    files: Mapping[str, list[Place]],
    sizes: Mapping[str, int],
    source: str | os.PathLike | None,
) -> None:
    """The small files beside the tensors, and the move to their place."""
    config = model_dims.to_hf(dims, str(dtypes[next(iter(dtypes))]))
    if source is not None and (pathlib.Path(source) / "config.json").is_file():
        theirs = folders.read_config(source)
        config |= {key: theirs[key] for key in TOKEN_IDS if key in theirs}
    _write_json(tmp / "config.json", config)
    if len(files) > 1:
        weight_map = {p.name: file for file, parts in files.items() for p in parts}
        metadata = {"total_size": sum(sizes.values())}
        _write_json(tmp / folders.INDEX, {"metadata": metadata, "weight_map": weight_map})
    if source is not None and pathlib.Path(source).is_dir():
        for path in sorted(pathlib.Path(source).iterdir()):
            if path.is_file() and any(path.match(pattern) for pattern in TOKENIZER_FILES):
                shutil.copy(path, tmp / path.name)
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(tmp, folder)
    shutil.rmtree(old, ignore_errors=True)


def _write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _on_first(action: Callable[[], None]) -> None:
    """Does it in the first process while the others wait; all of them fail where it does."""
    error: Exception | None = None
    if jax.process_index() == 0:
        try:
            action()
        except Exception as caught:
            error = caught
    if jax.process_count() > 1:
        failed = multihost_utils.broadcast_one_to_all(np.bool_(error is not None))
        if failed and error is None:
            error = OSError("the first process could not write the checkpoint; see its own error")
    if error is not None:
        raise error
