"""config.json to dimensions: what the released checkpoints say, and what is refused by name."""

import json

import pytest

from disco_jax.model import dims as model_dims
from disco_jax.model.dims import ModelDims, RopeScaling

# The files as published, without the keys that no library reads; transformers 4's spelling.
QWEN_COMMON = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151646,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
}
LLAMA_COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}
QWEN3_COMMON = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def sizes(hidden, mlp, layers, heads, kv_heads, **more):
    return {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    } | more


RELEASED = {
    "DeepSeek-R1-Distill-Qwen-1.5B": QWEN_COMMON
    | sizes(1536, 8960, 28, 12, 2, max_position_embeddings=131072, rope_theta=10000)
    | {"sliding_window": 4096, "max_window_layers": 21}
    | {"tie_word_embeddings": False, "vocab_size": 151936},
    "DeepSeek-R1-Distill-Qwen-7B": QWEN_COMMON
    | sizes(3584, 18944, 28, 28, 4, max_position_embeddings=131072, rope_theta=10000)
    | {"sliding_window": 4096, "max_window_layers": 28}
    | {"tie_word_embeddings": False, "vocab_size": 152064},
    "DeepSeek-R1-Distill-Llama-8B": LLAMA_COMMON
    | sizes(4096, 14336, 32, 32, 8, tie_word_embeddings=False),
    "Qwen2.5-0.5B": QWEN_COMMON
    | sizes(896, 4864, 24, 14, 2, max_position_embeddings=32768, rope_theta=1000000.0)
    | {"sliding_window": 32768, "max_window_layers": 24}
    | {"tie_word_embeddings": True, "vocab_size": 151936},
    "Llama-3.2-1B-Instruct": LLAMA_COMMON
    | sizes(2048, 8192, 16, 32, 8, head_dim=64, tie_word_embeddings=True)
    | {"rope_scaling": LLAMA_COMMON["rope_scaling"] | {"factor": 32.0}},
    "Llama-3-8B": LLAMA_COMMON
    | sizes(4096, 14336, 32, 32, 8, tie_word_embeddings=False)
    | {"rope_scaling": None, "max_position_embeddings": 8192},
    "Qwen3-1.7B": QWEN3_COMMON
    | sizes(2048, 6144, 28, 16, 8, max_window_layers=28, tie_word_embeddings=True),
    "Qwen3-8B": QWEN3_COMMON
    | sizes(4096, 12288, 36, 32, 8, max_window_layers=36, tie_word_embeddings=False),
}
LLAMA3 = RopeScaling(8.0, 1.0, 4.0, 8192)
DIMS = {
    "DeepSeek-R1-Distill-Qwen-1.5B": ModelDims(
        "qwen2", 151936, 1536, 28, 12, 2, 128, 8960, 131072, 1e4, None, 1e-6, False
    ),
    "DeepSeek-R1-Distill-Qwen-7B": ModelDims(
        "qwen2", 152064, 3584, 28, 28, 4, 128, 18944, 131072, 1e4, None, 1e-6, False
    ),
    "DeepSeek-R1-Distill-Llama-8B": ModelDims(
        "llama", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 5e5, LLAMA3, 1e-5, False
    ),
    "Qwen2.5-0.5B": ModelDims(
        "qwen2", 151936, 896, 24, 14, 2, 64, 4864, 32768, 1e6, None, 1e-6, True
    ),
    "Llama-3.2-1B-Instruct": ModelDims(
        "llama",
        128256,
        2048,
        16,
        32,
        8,
        64,
        8192,
        131072,
        5e5,
        RopeScaling(32.0, 1.0, 4.0, 8192),
        1e-5,
        True,
    ),
    "Llama-3-8B": ModelDims(
        "llama", 128256, 4096, 32, 32, 8, 128, 14336, 8192, 5e5, None, 1e-5, False
    ),
    "Qwen3-1.7B": ModelDims(
        "qwen3", 151936, 2048, 28, 16, 8, 128, 6144, 40960, 1e6, None, 1e-6, True
    ),
    "Qwen3-8B": ModelDims(
        "qwen3", 151936, 4096, 36, 32, 8, 128, 12288, 40960, 1e6, None, 1e-6, False
    ),
}


def as_transformers_5(config):
    """The same configuration as a later release writes it."""
    config = dict(config)
    rope = dict(config.pop("rope_scaling", None) or {"rope_type": "default"})
    config["rope_parameters"] = rope | {"rope_theta": config.pop("rope_theta")}
    config["dtype"] = config.pop("torch_dtype")
    if config["model_type"] != "llama":
        config["layer_types"] = ["full_attention"] * config["num_hidden_layers"]
        config["sliding_window"] = None
    return config


@pytest.mark.parametrize("spelling", [dict, as_transformers_5], ids=["4", "5"])
@pytest.mark.parametrize("name", RELEASED)
def test_released_checkpoints_are_read(name, spelling):
    config = json.loads(json.dumps(spelling(RELEASED[name])))
    assert model_dims.from_hf(config) == DIMS[name]


@pytest.mark.parametrize("name", RELEASED)
def test_dimensions_survive_the_round_trip(name):
    assert model_dims.from_hf(model_dims.to_hf(DIMS[name], "bfloat16")) == DIMS[name]


QWEN, LLAMA, QWEN3 = "DeepSeek-R1-Distill-Qwen-1.5B", "DeepSeek-R1-Distill-Llama-8B", "Qwen3-8B"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
REFUSED = [
    (QWEN, {"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
    (QWEN, {"architectures": ["Qwen2MoeForCausalLM"]}, "Qwen2MoeForCausalLM"),
    (QWEN, {"architectures": ["Qwen2Model"]}, "Qwen2Model"),
    (QWEN, {"architectures": None}, r"architectures=\[\]"),
    (QWEN, {"architectures": "Qwen2ForCausalLM"}, "architectures=Qwen2ForCausalLM"),
    (QWEN, {"use_sliding_window": True}, "sliding_window"),
    (QWEN, {"use_sliding_window": True, "max_window_layers": 27}, "sliding_window"),
    (LLAMA, {"sliding_window": 4096}, "sliding_window"),
    (QWEN3, {"layer_types": ["full_attention", "sliding_attention"] * 18}, "sliding_attention"),
    (QWEN3, {"layer_types": ["linear_attention"] * 36}, "linear_attention"),
    (QWEN3, {"num_experts": 128}, "num_experts"),
    (LLAMA, {"num_local_experts": 8}, "num_local_experts"),
    (QWEN, {"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantization_config"),
    (QWEN, {"dual_chunk_attention_config": {"chunk_size": 1}}, "dual_chunk_attention_config"),
    (QWEN, {"use_mrope": True}, "use_mrope"),
    (LLAMA, {"attention_bias": True}, "attention_bias"),
    (QWEN3, {"attention_bias": True}, "attention_bias"),
    (LLAMA, {"mlp_bias": True}, "mlp_bias"),
    (LLAMA, {"attention_dropout": 0.1}, "attention_dropout"),
    (LLAMA, {"hidden_act": "gelu"}, "gelu"),
    (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    (LLAMA, {"is_causal": False}, "is_causal"),
    (LLAMA, {"auto_map": {"AutoModelForCausalLM": "modeling.Own"}}, "auto_map"),
    (QWEN, {"rope_scaling": YARN}, "yarn"),
    (QWEN, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
    (QWEN, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
    (QWEN, {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0]}}, "longrope"),
    (QWEN, {"rope_parameters": YARN | {"rope_theta": 1e6}}, "yarn"),
    (QWEN, {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "full_attention"),
    (QWEN, {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}}, "partial_rot"),
    (QWEN, {"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}}, "mrope_section"),
    (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, "lacks 'factor'"),
    (
        LLAMA,
        {"rope_scaling": LLAMA_COMMON["rope_scaling"] | {"high_freq_factor": 1.0}},
        "high_freq_factor",
    ),
    (QWEN, {"num_hidden_layers": None}, "lacks 'num_hidden_layers'"),
    (QWEN, {"num_key_value_heads": None}, "lacks 'num_key_value_heads'"),
    (QWEN3, {"head_dim": None}, "lacks 'head_dim'"),
    (QWEN, {"hidden_size": "1536"}, "hidden_size='1536'"),
    (QWEN, {"vocab_size": 0}, "vocab_size=0"),
    (QWEN, {"intermediate_size": 1.5}, "intermediate_size=1.5"),
    (QWEN, {"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
    (QWEN, {"num_key_value_heads": 5}, "num_key_value_heads=5"),
    (QWEN, {"head_dim": 127}, "127"),
]


@pytest.mark.parametrize(("name", "change", "named"), REFUSED)
def test_what_is_not_implemented_is_refused_by_name(name, change, named):
    with pytest.raises(ValueError, match=named):
        model_dims.from_hf(RELEASED[name] | change)


def test_windows_that_no_layer_uses_are_no_windows():
    """Switched on, but from a layer on that the model does not have; or switched off."""
    on = {"use_sliding_window": True, "max_window_layers": 28}
    assert model_dims.from_hf(RELEASED[QWEN] | on) == DIMS[QWEN]
    absent = {k: v for k, v in RELEASED[QWEN].items() if k != "use_sliding_window"}
    assert model_dims.from_hf(absent) == DIMS[QWEN]
