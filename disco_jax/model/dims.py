"""Model dimensions: one frozen record, read from a Hugging Face config.json.

What the decoder does not implement is refused by name: an ignored option would train a
different model without a word.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama 3's frequency scaling (`rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclasses.dataclass(frozen=True)
class ModelDims:
    """Sizes and switches of the decoder; hashable, so it can be a static argument of jit.

    Letters as in `types.py`: V = vocab, D = width, H = heads, K = kv_heads, F = mlp.
    """

    family: str  # "llama", "qwen2" or "qwen3"
    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    max_position: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-6
    tied: bool = False  # the output head is the embedding table

    @property
    def qkv_bias(self) -> bool:
        return self.family == "qwen2"

    @property
    def qk_norm(self) -> bool:
        return self.family == "qwen3"


def from_hf(config: Mapping[str, Any]) -> ModelDims:
    """Reads the dimensions from a parsed config.json.

    Raises:
      ValueError: an architecture or an option that the decoder does not implement, or a missing
        key; the message names it.
    """
    names = list(config.get("architectures") or [])
    if len(names) != 1 or names[0] not in ARCHITECTURES:
        raise ValueError(
            f"config.json: architectures={names} is not supported; one of {list(ARCHITECTURES)}"
        )
    family = ARCHITECTURES[names[0]]
    _refuse_unsupported(config)
    # transformers 5 writes `rope_parameters`, earlier releases `rope_theta` and `rope_scaling`.
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = rope.pop("rope_theta", None) or config.get("rope_theta", 10_000.0)
    try:
        heads = int(config["num_attention_heads"])
        width = int(config["hidden_size"])
        return ModelDims(
            family=family,
            vocab=int(config["vocab_size"]),
            width=width,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or width // heads),
            mlp=int(config["intermediate_size"]),
            max_position=int(config["max_position_embeddings"]),
            rope_theta=float(theta),
            rope_scaling=_rope_scaling(rope),
            norm_eps=float(config["rms_norm_eps"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise ValueError(f"config.json lacks {error}, needed by {names[0]}") from None


def to_hf(dims: ModelDims) -> dict[str, Any]:
    """The config.json of these dimensions, as Hugging Face libraries read it."""
    architecture = next(name for name, family in ARCHITECTURES.items() if family == dims.family)
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": dims.family,
        "hidden_act": "silu",
        "vocab_size": dims.vocab,
        "hidden_size": dims.width,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "head_dim": dims.head_dim,
        "intermediate_size": dims.mlp,
        "max_position_embeddings": dims.max_position,
        "rope_theta": dims.rope_theta,
        "rope_scaling": None,
        "rms_norm_eps": dims.norm_eps,
        "tie_word_embeddings": dims.tied,
        "torch_dtype": "float32",
    }
    if dims.rope_scaling:
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": dims.rope_scaling.factor,
            "low_freq_factor": dims.rope_scaling.low_freq_factor,
            "high_freq_factor": dims.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": dims.rope_scaling.original_max_position,
        }
    return config


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    sliding = config.get("use_sliding_window", False) or (
        "use_sliding_window" not in config and config.get("sliding_window")
    )
    refused = {
        "sliding-window attention (use_sliding_window)": bool(sliding),
        "sliding-window layers (layer_types)": "sliding_attention"
        in (config.get("layer_types") or []),
        "a quantised checkpoint (quantization_config)": bool(config.get("quantization_config")),
        "attention_bias on every projection": bool(config.get("attention_bias")),
        "mlp_bias": bool(config.get("mlp_bias")),
        f"hidden_act={config.get('hidden_act')!r} (only silu)": config.get("hidden_act", "silu")
        not in ("silu", "swish"),
        "partial_rotary_factor": float(config.get("partial_rotary_factor") or 1.0) != 1.0,
    }
    for what, present in refused.items():
        if present:
            raise ValueError(f"config.json asks for {what}: not supported by this decoder")


def _rope_scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"config.json: rope type {kind!r} is not supported; default or llama3")
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_max_position=int(rope["original_max_position_embeddings"]),
    )
