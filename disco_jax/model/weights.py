"""Hugging Face checkpoints: a folder with config.json and safetensors, in and out.

One table maps our parameter names to theirs. Loading accounts for every tensor: a missing, an
unexpected or a misshapen one is an error that lists them all.
"""

import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from disco_jax.model import dims as model_dims
from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims

# ours -> (theirs, transposed); `{i}` is the layer.
TOP = {
    "embed": ("model.embed_tokens.weight", False),
    "final_norm": ("model.norm.weight", False),
    "head": ("lm_head.weight", True),
}
LAYER = {
    "attn_norm": ("model.layers.{i}.input_layernorm.weight", False),
    "mlp_norm": ("model.layers.{i}.post_attention_layernorm.weight", False),
    "q_norm": ("model.layers.{i}.self_attn.q_norm.weight", False),
    "k_norm": ("model.layers.{i}.self_attn.k_norm.weight", False),
    "q": ("model.layers.{i}.self_attn.q_proj.weight", True),
    "k": ("model.layers.{i}.self_attn.k_proj.weight", True),
    "v": ("model.layers.{i}.self_attn.v_proj.weight", True),
    "o": ("model.layers.{i}.self_attn.o_proj.weight", True),
    "q_bias": ("model.layers.{i}.self_attn.q_proj.bias", False),
    "k_bias": ("model.layers.{i}.self_attn.k_proj.bias", False),
    "v_bias": ("model.layers.{i}.self_attn.v_proj.bias", False),
    "gate": ("model.layers.{i}.mlp.gate_proj.weight", True),
    "up": ("model.layers.{i}.mlp.up_proj.weight", True),
    "down": ("model.layers.{i}.mlp.down_proj.weight", True),
}
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
# Buffers that some exports carry and no computation here needs.
IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)


def read_dims(folder: str | os.PathLike) -> ModelDims:
    """The dimensions in `folder`/config.json.

    Raises:
      FileNotFoundError: no config.json there.
      ValueError: not JSON, or an unsupported model (see `dims.from_hf`).
    """
    path = pathlib.Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: not a Hugging Face checkpoint folder")
    try:
        config = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    return model_dims.from_hf(config)


def load(folder: str | os.PathLike, dims: ModelDims) -> dict[str, Any]:
    """Parameters as float32 numpy arrays, in the layout of `transformer.init`.

    Raises:
      FileNotFoundError: no safetensors file in the folder.
      ValueError: tensors missing, unexpected or misshapen; all of them are listed.
    """
    files = _Tensors(pathlib.Path(folder))
    expected = jax.eval_shape(lambda key: transformer.init(key, dims), jax.random.key(0))
    problems = []
    params: dict[str, Any] = {"layers": {}}
    for name, leaf in expected.items():
        if name != "layers":
            theirs, transposed = TOP[name]
            params[name] = files.read(theirs, leaf.shape, transposed, problems)
    for name, leaf in expected["layers"].items():
        theirs, transposed = LAYER[name]
        stacked = np.empty(leaf.shape, np.float32)
        for i in range(dims.layers):
            tensor = files.read(theirs.format(i=i), leaf.shape[1:], transposed, problems)
            if tensor is not None:
                stacked[i] = tensor
        params["layers"][name] = stacked
    ignored = IGNORED_SUFFIXES + (("lm_head.weight",) if dims.tied else ())
    problems += [f"{n}: unexpected" for n in sorted(files.unread()) if not n.endswith(ignored)]
    if problems:
        listed = "\n  ".join(problems)
        raise ValueError(f"{folder}: the tensors do not match config.json:\n  {listed}")
    return params


def save(
    folder: str | os.PathLike,
    dims: ModelDims,
    params: dict[str, Any],
    tokenizer_from: str | os.PathLike | None = None,
) -> None:
    """Writes config.json and model.safetensors (float32), and copies the tokenizer's files.

    It is written beside its place and renamed, so a folder of that name is never half a checkpoint;
    an older one is removed just before.
    """
    folder = pathlib.Path(folder)
    tmp = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir(parents=True)
    (tmp / "config.json").write_text(json.dumps(model_dims.to_hf(dims), indent=2) + "\n")
    save_file(dict(_to_hf(params)), tmp / "model.safetensors", metadata={"format": "pt"})
    if tokenizer_from is not None:
        for path in sorted(pathlib.Path(tokenizer_from).iterdir()):
            if path.is_file() and any(path.match(pattern) for pattern in TOKENIZER_FILES):
                shutil.copy(path, tmp / path.name)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(tmp, folder)


def _to_hf(params: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    def out(x: Any, transposed: bool) -> np.ndarray:
        x = np.asarray(x, np.float32)
        return np.ascontiguousarray(x.T if transposed else x)

    for name, leaf in params.items():
        if name != "layers":
            theirs, transposed = TOP[name]
            yield theirs, out(leaf, transposed)
    for name, stacked in params["layers"].items():
        theirs, transposed = LAYER[name]
        for i, leaf in enumerate(np.asarray(stacked)):
            yield theirs.format(i=i), out(leaf, transposed)


def _open(path: pathlib.Path):
    try:
        return safe_open(path, framework="np")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a safetensors file ({error}); a truncated download, or the pointer of"
            " a large file that was not fetched?"
        ) from error


class _Tensors:
    """The tensors of a folder's safetensors files, read one at a time."""

    def __init__(self, folder: pathlib.Path):
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise FileNotFoundError(f"{folder} holds no *.safetensors file")
        self._files = [_open(path) for path in paths]
        self._where = {name: file for file in self._files for name in file.keys()}  # noqa: SIM118
        self._read: set[str] = set()

    def read(
        self, name: str, shape: tuple[int, ...], transposed: bool, problems: list[str]
    ) -> np.ndarray | None:
        """The tensor in float32 and our orientation; a problem is noted, not raised."""
        self._read.add(name)
        if name not in self._where:
            problems.append(f"{name}: missing")
            return None
        tensor = self._where[name].get_tensor(name)
        tensor = tensor.T if transposed else tensor
        if tensor.shape != tuple(shape):
            theirs = tensor.shape[::-1] if transposed else tensor.shape
            wanted = tuple(shape)[::-1] if transposed else tuple(shape)
            problems.append(f"{name}: shape {theirs}, config.json implies {wanted}")
            return None
        return np.ascontiguousarray(tensor, np.float32)

    def unread(self) -> set[str]:
        return set(self._where) - self._read
