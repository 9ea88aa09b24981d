"""Model dimensions: one frozen record, read from a Hugging Face config.json.

What the decoder does not implement is refused by name: an ignored option would train a
different model without a word.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

# Keys of the options that no value switches on here, with what they ask for.
REFUSED = {
    "quantization_config": "a quantised checkpoint",
    "compression_config": "a compressed checkpoint",
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
    "moe_intermediate_size": "a mixture of experts",
    "dual_chunk_attention_config": "dual chunk attention",
    "attention_bias": "a bias on every attention projection",
    "mlp_bias": "a bias on the MLP's projections",
    "attention_dropout": "dropout of attention weights",
    "use_mrope": "multimodal rotary positions",
    "attn_logit_softcapping": "capped attention scores",
    "final_logit_softcapping": "capped logits",
}
LLAMA3_KEYS = {
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
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
    """Reads the dimensions from a parsed config.json, as transformers 4 or 5 writes it.

    Raises:
      ValueError: an architecture or an option that the decoder does not implement, a missing key
        or a value that cannot be; the message names it.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        raise ValueError(
            f"config.json: architectures={names} is not supported; one of {list(ARCHITECTURES)}"
        )
    family = ARCHITECTURES[names[0]]
    _refuse_unsupported(config, family)
    theta, scaling = _rope(config)
    heads, width = _size(config, "num_attention_heads"), _size(config, "hidden_size")
    # The two keys that Llama may leave out, having a default that follows from the others.
    optional = family == "llama"
    kv_heads = _size(config, "num_key_value_heads", heads if optional else None)
    head_dim = _size(config, "head_dim", None if family == "qwen3" else width // heads)
    if heads % kv_heads or head_dim % 2:
        raise ValueError(
            f"config.json: num_attention_heads={heads} must be a multiple of num_key_value_heads="
            f"{kv_heads}, and the heads' size {head_dim} even"
        )
    return ModelDims(
        family=family,
        vocab=_size(config, "vocab_size"),
        width=width,
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=_size(config, "intermediate_size"),
        max_position=_size(config, "max_position_embeddings"),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=_number(config, "rms_norm_eps"),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def to_hf(dims: ModelDims, dtype: str = "float32") -> dict[str, Any]:
    """The config.json of these dimensions, in the spelling that transformers 4 and 5 both read.

    Args:
      dims: the dimensions.
      dtype: of the tensors beside it.
    """
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
        "torch_dtype": dtype,
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


def _refuse_unsupported(config: Mapping[str, Any], family: str) -> None:
    refused = {f"{what} ({key})": bool(config.get(key)) for key, what in REFUSED.items()}
    kinds = config.get("layer_types") or []
    refused |= {
        "sliding-window attention (sliding_window)": _slides(config, family),
        f"layers other than full attention (layer_types={sorted(set(map(str, kinds)))})": any(
            kind != "full_attention" for kind in kinds
        ),
        f"hidden_act={config.get('hidden_act')!r} (only silu)": config.get("hidden_act", "silu")
        not in ("silu", "swish"),
        f"partial_rotary_factor={config.get('partial_rotary_factor')}": (
            config.get("partial_rotary_factor") not in (None, 1, 1.0)
        ),
        "attention to later tokens (is_causal=false)": config.get("is_causal") is False,
        "code of its own (auto_map)": "AutoModelForCausalLM" in (config.get("auto_map") or {}),
    }
    for what, present in refused.items():
        if present:
            raise ValueError(f"config.json asks for {what}: not supported by this decoder")


def _slides(config: Mapping[str, Any], family: str) -> bool:
    """Whether any layer attends through a window.

    Qwen's layers do from `max_window_layers` on where `use_sliding_window` is set; its released
    checkpoints carry a size that is switched off. Llama has no such switch.
    """
    if config.get("layer_types"):
        return False  # they say it layer by layer, and are looked at by the caller
    if family == "llama":
        return bool(config.get("sliding_window") or config.get("use_sliding_window"))
    if not (config.get("use_sliding_window") and config.get("sliding_window")):
        return False
    return _size(config, "max_window_layers", 28) < _size(config, "num_hidden_layers")


def _rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base of the rotary frequencies, and their scaling.

    transformers 5 writes both into `rope_parameters`, earlier releases into `rope_theta` and
    `rope_scaling`.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping) or any(isinstance(v, Mapping) for v in rope.values()):
        raise ValueError(f"config.json: rotary positions per kind of layer ({rope}), not supported")
    theta = _number(rope if "rope_theta" in rope else config, "rope_theta", 10_000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "llama3"):
        raise ValueError(f"config.json: rope type {kind!r} is not supported; default or llama3")
    known = {"rope_theta", "rope_type", "type"} | (LLAMA3_KEYS if kind == "llama3" else set())
    left = {k: v for k, v in rope.items() if k not in known and v is not None}
    if left.pop("partial_rotary_factor", 1) != 1 or left:
        raise ValueError(
            f"config.json: rotary positions ask for {dict(rope)}; of rope type {kind!r} only"
            f" {sorted(known)} are supported"
        )
    if kind == "default":
        return theta, None
    scaling = RopeScaling(
        factor=_number(rope, "factor"),
        low_freq_factor=_number(rope, "low_freq_factor"),
        high_freq_factor=_number(rope, "high_freq_factor"),
        original_max_position=_size(rope, "original_max_position_embeddings"),
    )
    if scaling.low_freq_factor >= scaling.high_freq_factor:
        raise ValueError(
            f"config.json: low_freq_factor={scaling.low_freq_factor} must be below"
            f" high_freq_factor={scaling.high_freq_factor}"
        )
    return theta, scaling


def _number(table: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = table.get(key)
    value = default if value is None else value
    if value is None:
        raise ValueError(f"config.json lacks {key!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ValueError(f"config.json: {key}={value!r} must be a number above 0")
    return float(value)


def _size(table: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = _number(table, key, default)
    if value != int(value):
        raise ValueError(f"config.json: {key}={value!r} must be a whole number")
    return int(value)
