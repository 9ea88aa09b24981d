"""Attention of packed rows: every backend against all scores at once, and how memory grows."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import attention
from disco_jax.model import mesh as meshes
from disco_jax.model.attention import packed_attention
from disco_jax.model.dims import ModelDims


def dense(q_BLHd, k_BLKd, v_BLKd, segment_BL):
    """By the textbook: one [L, L] softmax per head."""
    group = q_BLHd.shape[2] // k_BLKd.shape[2]
    k_BLHd, v_BLHd = (jnp.repeat(x, group, axis=2) for x in (k_BLKd, v_BLKd))
    scores_BHLL = jnp.einsum("blhd,bchd->bhlc", q_BLHd, k_BLHd) * q_BLHd.shape[-1] ** -0.5
    seen_BLL = segment_BL[:, :, None] == segment_BL[:, None]
    seen_BLL &= jnp.tri(segment_BL.shape[1], dtype=bool)
    p_BHLL = jax.nn.softmax(jnp.where(seen_BLL[:, None], scores_BHLL, -jnp.inf), axis=-1)
    return jnp.einsum("bhlc,bchd->blhd", p_BHLL, v_BLHd)


def inputs(B, L, H, K, d):
    """q, k, v, segments (two, then padding, at another place in every row), and a slope."""
    keys = jax.random.split(jax.random.key(L), 4)
    sizes = ((B, L, H, d), (B, L, K, d), (B, L, K, d), (B, L, H, d))
    q, k, v, slope = (jax.random.normal(key, s) for key, s in zip(keys, sizes, strict=True))
    position_L, row_B1 = jnp.arange(L), jnp.arange(B)[:, None]
    segment_BL = 1 + (position_L >= L // 3 + row_B1)
    return q, k, v, jnp.where(position_L < L - L // 8, segment_BL, 0).astype(jnp.int32), slope


def value_and_gradients(form, q, k, v, segment_BL, slope):
    def value(q, k, v):
        out = form(q, k, v, segment_BL)
        return jnp.sum(slope * out), out

    return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2), has_aux=True))(q, k, v)


def assert_same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5), a, b)


# one part; two parts with padding; two; four of two blocks each, with padding
@pytest.mark.parametrize("length", [7, 149, 256, 1030])
def test_in_blocks_it_equals_the_textbook(length):
    case = inputs(2, length, 4, 2, 8)
    assert_same(value_and_gradients(packed_attention, *case), value_and_gradients(dense, *case))


@pytest.mark.parametrize("backend", ["splash", "triton"])
def test_a_kernel_equals_the_textbook(backend):
    """In interpret mode, on rows and heads split over four devices."""
    mesh = meshes.make_mesh((1, 2, 2), jax.devices()[:4])
    case = inputs(2, 256, 4, 2, 64)

    def kernel(q, k, v, segment_BL):
        return packed_attention(q, k, v, segment_BL, backend=backend, mesh=mesh, interpret=True)

    assert_same(value_and_gradients(kernel, *case), value_and_gradients(dense, *case))


def test_memory_grows_with_the_row_not_with_its_square():
    def compiled(length):
        q, k = (jax.ShapeDtypeStruct((1, length, heads, 8), jnp.float32) for heads in (4, 2))
        segment = jax.ShapeDtypeStruct((1, length), jnp.int32)

        def value(q, k, v, segment):
            return jnp.sum(packed_attention(q, k, v, segment) ** 2)

        return jax.jit(jax.grad(value, argnums=(0, 1, 2))).lower(q, k, k, segment).compile()

    temporary = {}
    for length in (4096, 8192, 16384):
        program = compiled(length)
        temporary[length] = program.memory_analysis().temp_size_in_bytes
        for shape in re.findall(r"f32\[([\d,]+)\]", program.as_text()):
            sizes = [int(size) for size in shape.split(",")]
            assert sum(size >= length // 4 for size in sizes) < 2, f"f32[{shape}] at L = {length}"
    assert temporary[16384] < 2.2 * temporary[8192] < 2.2**2 * temporary[4096], temporary


class Platform:
    """Stands for a device that is not at hand."""

    def __init__(self, platform):
        self.platform = platform


def choose(name, platform, row_tokens=9216, tensor=1, **changes):
    sizes = {"heads": 12, "kv_heads": 2, "head_dim": 128} | changes
    dims = ModelDims(
        family="qwen2", vocab=8, width=8, layers=1, mlp=8, max_position=8, **sizes
    )  # fmt: skip
    devices = np.array([Platform(platform)] * tensor, object).reshape(1, 1, tensor)
    mesh = type("Mesh", (), {"devices": devices, "shape": {"tensor": tensor}})
    return attention.choose_backend(name, dims, row_tokens, mesh)


def test_auto_takes_the_kernel_of_the_platform_where_the_sizes_suit_it():
    assert choose("auto", "tpu") == "splash"
    assert choose("auto", "gpu") == "triton"
    assert choose("auto", "cpu") == "xla"
    assert choose("auto", "tpu", row_tokens=100) == "xla"
    assert choose("auto", "tpu", head_dim=80) == "xla"
    assert choose("xla", "tpu") == "xla"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"platform": "cpu"}, "needs a TPU, the devices are cpu"),
        ({"platform": "tpu", "row_tokens": 1000}, "row_tokens=1000 to be a multiple of 128"),
        ({"platform": "tpu", "head_dim": 80}, "the model's have 80"),
        ({"platform": "tpu", "tensor": 4}, "tensor=4, which must divide the model's 12 query and"),
    ],
)
def test_a_kernel_that_cannot_run_is_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        choose("splash", **wrong)
