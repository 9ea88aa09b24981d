"""What a checkpoint's folder holds: its config.json, and every tensor by name, headers only."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from disco_jax.model import dims as model_dims
from disco_jax.model import gguf
from disco_jax.model.dims import ModelDims
from disco_jax.model.tensor_files import StoredTensor, read_header

INDEX = "model.safetensors.index.json"


class Stored(Protocol):
    """A tensor of a checkpoint in Hugging Face's orientation, wherever its bytes are."""

    @property
    def code(self) -> str: ...  # of its format
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype | None: ...  # None: a format that is not read
    @property
    def nbytes(self) -> int: ...
    def read(self, index: tuple[slice, ...]) -> np.ndarray: ...


def read_dims(folder: str | os.PathLike) -> ModelDims:
    """The dimensions of a checkpoint: from config.json, or from a GGUF file's own metadata.

    Args:
      folder: of the checkpoint, or the path of a GGUF file.

    Raises:
      FileNotFoundError: no config.json there.
      ValueError: not JSON, or an unsupported model (see `dims.from_hf`, `gguf.read_dims`).
    """
    if file := gguf_file(pathlib.Path(folder)):
        return gguf.read_dims(file)
    return model_dims.from_hf(read_config(folder))


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
    """The parsed config.json of a folder; raises as `read_dims` does."""
    path = pathlib.Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: not a Hugging Face checkpoint folder")
    try:
        config = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    return config


def stored_tensors(folder: str | os.PathLike, dims: ModelDims) -> Mapping[str, Stored]:
    """Every tensor of a checkpoint, by its Hugging Face name; none of their bytes is read.

    Where there is an index, the files it names are the checkpoint, and others beside them are not.

    Raises:
      FileNotFoundError: no weights in the folder, or a file that its index names is not there.
      ValueError: a damaged or contradictory file.
    """
    folder = pathlib.Path(folder)
    if file := gguf_file(folder):
        return gguf.stored_tensors(file, dims)
    if (folder / INDEX).is_file():
        return _indexed(folder / INDEX)
    single = folder / "model.safetensors"
    paths = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no *.safetensors file")
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        found = read_header(path)
        if twice := sorted(found.keys() & tensors.keys()):
            other = tensors[twice[0]].path
            raise ValueError(f"{path} holds {twice[0]}, as {other} does; which one is meant?")
        tensors |= found
    return tensors


def _indexed(index: pathlib.Path) -> dict[str, StoredTensor]:
    try:
        weight_map = dict(json.loads(index.read_text())["weight_map"])
        # Names of files beside the index, never paths: it is as little trusted as a header.
        plain = {str(file): pathlib.PurePath(file).name == file for file in weight_map.values()}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{index} is not an index of safetensors files: {error!r}") from None
    for file, beside in plain.items():
        if not beside:
            raise ValueError(f"{index} names {file!r}, which is not a file beside it")
        if not (index.parent / file).is_file():
            raise FileNotFoundError(f"{index} names {file}, which is not there")
    headers = {file: read_header(index.parent / file) for file in plain}
    misplaced = sorted(name for name, file in weight_map.items() if name not in headers[file])
    if misplaced:
        raise ValueError(f"{index}: not in the files it names: {', '.join(misplaced)}")
    return {name: headers[file][name] for name, file in weight_map.items()}


def gguf_file(path: pathlib.Path) -> pathlib.Path | None:
    """The GGUF file that a path stands for: itself, or the only weights of a folder.

    Raises:
      ValueError: a folder with several.
    """
    if path.is_file():
        return path
    if any(path.glob("*.safetensors")):
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        raise ValueError(f"{path} holds {len(files)} GGUF files; give the path of one of them")
    return files[0] if files else None
