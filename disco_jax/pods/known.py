"""Sizes of models that need not be on disk to be checked: the three of the paper.

From the config.json files that are published with their weights.
"""

from disco_jax.model.dims import ModelDims, RopeScaling

MODELS = {
    "DeepSeek-R1-Distill-Qwen-1.5B": ModelDims(
        family="qwen2",
        vocab=151_936,
        width=1536,
        layers=28,
        heads=12,
        kv_heads=2,
        head_dim=128,
        mlp=8960,
        max_position=131_072,
        rope_theta=10_000.0,
        norm_eps=1e-6,
        tied=False,
    ),
    "DeepSeek-R1-Distill-Qwen-7B": ModelDims(
        family="qwen2",
        vocab=152_064,
        width=3584,
        layers=28,
        heads=28,
        kv_heads=4,
        head_dim=128,
        mlp=18_944,
        max_position=131_072,
        rope_theta=10_000.0,
        norm_eps=1e-6,
        tied=False,
    ),
    "DeepSeek-R1-Distill-Llama-8B": ModelDims(
        family="llama",
        vocab=128_256,
        width=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp=14_336,
        max_position=131_072,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192),
        norm_eps=1e-5,
        tied=False,
    ),
}


def parameters(dims: ModelDims) -> int:
    """How many there are, the embedding table and the output head included."""
    D, d = dims.width, dims.head_dim
    biases = (dims.heads + 2 * dims.kv_heads) * d if dims.qkv_bias else 0
    norms = 2 * D + (2 * d if dims.qk_norm else 0)
    tables = dims.vocab * D * (1 if dims.tied else 2)
    return dims.layers * (layer_weights(dims) + biases + norms) + tables + D


def layer_weights(dims: ModelDims) -> int:
    """Entries of one layer's matrices."""
    D, d, H, K = dims.width, dims.head_dim, dims.heads, dims.kv_heads
    return D * d * (2 * H + 2 * K) + 3 * D * dims.mlp
