"""GGUF files (llama.cpp's), read through the gguf package: dimensions, and tensors as floats.

Quantised tensors are dequantised as they are read, only the rows that are asked for. They go by
llama.cpp's names in the file and by Hugging Face's here.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from disco_jax.model.dims import ModelDims, RopeScaling

FAMILIES = ("llama", "qwen2", "qwen3")
# theirs -> Hugging Face's; `{i}` is the layer.
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.{i}.attn_norm.weight": "model.layers.{i}.input_layernorm.weight",
    "blk.{i}.ffn_norm.weight": "model.layers.{i}.post_attention_layernorm.weight",
    "blk.{i}.attn_q_norm.weight": "model.layers.{i}.self_attn.q_norm.weight",
    "blk.{i}.attn_k_norm.weight": "model.layers.{i}.self_attn.k_norm.weight",
    "blk.{i}.attn_q.weight": "model.layers.{i}.self_attn.q_proj.weight",
    "blk.{i}.attn_k.weight": "model.layers.{i}.self_attn.k_proj.weight",
    "blk.{i}.attn_v.weight": "model.layers.{i}.self_attn.v_proj.weight",
    "blk.{i}.attn_output.weight": "model.layers.{i}.self_attn.o_proj.weight",
    "blk.{i}.attn_q.bias": "model.layers.{i}.self_attn.q_proj.bias",
    "blk.{i}.attn_k.bias": "model.layers.{i}.self_attn.k_proj.bias",
    "blk.{i}.attn_v.bias": "model.layers.{i}.self_attn.v_proj.bias",
    "blk.{i}.ffn_gate.weight": "model.layers.{i}.mlp.gate_proj.weight",
    "blk.{i}.ffn_up.weight": "model.layers.{i}.mlp.up_proj.weight",
    "blk.{i}.ffn_down.weight": "model.layers.{i}.mlp.down_proj.weight",
}
ROPE_FREQS = "rope_freqs.weight"  # Llama 3's frequency scaling, as divisors: not a parameter
# Metadata (below the architecture's name) that changes the computation and is not implemented.
REFUSED = {
    "expert_count": "a mixture of experts",
    "attention.sliding_window": "sliding-window attention",
    "attention.clamp_kqv": "clamped projections",
    "attn_logit_softcapping": "capped attention scores",
    "final_logit_softcapping": "capped logits",
    "logit_scale": "scaled logits",
    "residual_scale": "scaled residuals",
    "embedding_scale": "scaled embeddings",
    "attention.scale": "scaled attention",
}
# Llama 3's scaling as its makers set it for 3.1 and 3.2; the factor is what varies.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 8192}


@dataclasses.dataclass(frozen=True)
class GgufTensor:
    """A tensor of a GGUF file in Hugging Face's orientation; float32 once read."""

    code: str  # GGUF's name of its format
    shape: tuple[int, ...]
    nbytes: int
    rows: np.ndarray  # of the mapped file, as stored
    order: np.ndarray | None  # row i of ours is row order[i] of theirs

    dtype = np.dtype(np.float32)

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """The part of the tensor at `index`, dequantised."""
        import gguf

        first, *others = index
        rows = self.rows[first if self.order is None else self.order[first]]
        values = gguf.dequantize(rows, gguf.GGMLQuantizationType[self.code])
        return np.ascontiguousarray(values[(slice(None), *others)], np.float32)


def read_dims(path: str | os.PathLike) -> ModelDims:
    """The dimensions in a file's metadata.

    Raises:
      ValueError: not a GGUF file, the package is not installed, or a model or an option that the
        decoder does not implement; the message names it.
    """
    file = _open(path)
    family = _value(file, path, "general.architecture")
    if family not in FAMILIES:
        raise ValueError(f"{path}: architecture {family!r} is not supported; one of {FAMILIES}")

    def get(key: str, default: Any = None) -> Any:
        return _value(file, path, f"{family}.{key}", default)

    for key, what in REFUSED.items():
        if get(key, 0):
            raise ValueError(f"{path} asks for {what} ({family}.{key}): not supported")
    kind = get("rope.scaling.type", "none")
    if kind != "none":
        raise ValueError(f"{path}: rope scaling {kind!r} is not supported; none or Llama 3's")
    heads, width = get("attention.head_count"), get("embedding_length")
    kv_heads = get("attention.head_count_kv", heads)
    if not all(isinstance(n, int) and n > 0 for n in (heads, kv_heads, width)):
        raise ValueError(f"{path}: heads {heads}, key/value heads {kv_heads} of width {width}")
    head_dim = get("attention.key_length", width // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if get(key, head_dim) != head_dim:
            raise ValueError(f"{path}: {family}.{key}={get(key)} of {head_dim}: not supported")
    theta = get("rope.freq_base", 10_000.0)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    embed = tensors.get("token_embd.weight")
    if embed is None:
        raise ValueError(f"{path} holds no token_embd.weight: not a language model's weights")
    return ModelDims(
        family=family,
        vocab=int(embed.shape[-1]),
        width=width,
        layers=get("block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=get("feed_forward_length"),
        max_position=get("context_length"),
        rope_theta=theta,
        rope_scaling=_scaling(path, tensors.get(ROPE_FREQS), head_dim, theta),
        norm_eps=get("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in tensors,
    )


def stored_tensors(path: str | os.PathLike, dims: ModelDims) -> dict[str, GgufTensor]:
    """Every tensor of the file, by its Hugging Face name where it has one.

    Raises:
      ValueError: as `read_dims`; or a format that the package does not dequantise.
    """
    file = _open(path)
    import gguf

    names = {
        theirs.format(i=i): ours.format(i=i)
        for theirs, ours in NAMES.items()
        for i in range(dims.layers)
    }
    orders = {}
    if dims.family == "llama":  # llama.cpp pairs neighbours where Hugging Face pairs halves
        for theirs, heads in (("attn_q", dims.heads), ("attn_k", dims.kv_heads)):
            order = np.arange(heads * dims.head_dim).reshape(heads, -1, 2)
            orders[theirs] = order.swapaxes(1, 2).reshape(-1)
    found, formats = {}, set()
    for tensor in file.tensors:
        code = tensor.tensor_type.name
        if code not in formats:
            try:
                gguf.dequantize(tensor.data[:1], tensor.tensor_type)
            except NotImplementedError:
                raise ValueError(f"{path}: {tensor.name} is {code}, which is not read") from None
            formats.add(code)
        if tensor.name == ROPE_FREQS:
            continue
        shape = tuple(int(n) for n in reversed(tensor.shape))
        order = next((o for kind, o in orders.items() if f".{kind}." in tensor.name), None)
        name = names.get(tensor.name, tensor.name)
        found[name] = GgufTensor(code, shape, int(tensor.n_bytes), tensor.data, order)
    return found


class _File(NamedTuple):
    metadata: dict[str, Any]
    tensors: list[Any]  # gguf.ReaderTensor


def _open(path: str | os.PathLike) -> _File:
    path = pathlib.Path(path)
    try:
        return _parse(path, path.stat().st_mtime_ns)
    except ImportError:
        raise ValueError(
            f"{path}: GGUF files need the gguf package: pip install 'disco-jax[gguf]'"
        ) from None
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a GGUF file that can be read: {error}") from error


@functools.lru_cache(maxsize=1)  # the package takes seconds to walk through a vocabulary
def _parse(path: pathlib.Path, mtime_ns: int) -> _File:
    import gguf

    reader = gguf.GGUFReader(path)
    fields = {k: v for k, v in reader.fields.items() if not k.startswith("tokenizer.")}
    return _File({key: field.contents() for key, field in fields.items()}, list(reader.tensors))


def _value(file: _File, path: str | os.PathLike, key: str, default: Any = None) -> Any:
    value = file.metadata.get(key, default)
    if value is None:
        raise ValueError(f"{path} lacks {key}")
    return value


def _scaling(
    path: str | os.PathLike, freqs: Any, head_dim: int, theta: float
) -> RopeScaling | None:
    """Llama 3's scaling, from the divisors that llama.cpp stores in its place.

    Raises:
      ValueError: divisors that are not those of Llama 3's scaling for any factor.
    """
    if freqs is None:
        return None
    divisor = np.asarray(freqs.data, np.float64)
    scaling = RopeScaling(factor=float(divisor.max()), **LLAMA3)
    turns = LLAMA3["original_max_position"] / (2 * np.pi)
    turns *= theta ** -(np.arange(0, head_dim, 2) / head_dim)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    smooth = np.clip((turns - scaling.low_freq_factor) / span, 0, 1)
    expected = 1 / (smooth + (1 - smooth) / scaling.factor)
    if divisor.shape != expected.shape or not np.allclose(divisor, expected, rtol=1e-4):
        raise ValueError(f"{path}: {ROPE_FREQS} is not the frequency scaling of Llama 3.1 or 3.2")
    return scaling
