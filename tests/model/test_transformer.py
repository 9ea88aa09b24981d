import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims, RopeScaling

FAMILIES = {
    "llama": {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64)},
    "qwen2": {"tied": True},
    "qwen3": {},
}


def small(family: str) -> ModelDims:
    return ModelDims(
        family=family,
        vocab=31,
        width=16,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        mlp=24,
        max_position=64,
        **FAMILIES[family],
    )


def hidden(params, dims, tokens_BL, segment_BL=None, position_BL=None, remat="none"):
    B, L = tokens_BL.shape
    if position_BL is None:
        position_BL = jnp.tile(jnp.arange(L), (B, 1))
    segment_BL = jnp.ones((B, L), jnp.int32) if segment_BL is None else segment_BL
    return transformer.hidden_states(
        params, dims, tokens_BL, position_BL, segment_BL, dtype=jnp.float32, remat=remat
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_never_depends_on_later_ones(family):
    dims = small(family)
    params = transformer.init(jax.random.key(0), dims)
    tokens_1L = jax.random.randint(jax.random.key(1), (1, 9), 0, dims.vocab)
    changed_1L = tokens_1L.at[0, 5].set((tokens_1L[0, 5] + 1) % dims.vocab)
    a, b = hidden(params, dims, tokens_1L), hidden(params, dims, changed_1L)
    np.testing.assert_array_equal(a[:, :5], b[:, :5])
    assert np.all(np.any(a[:, 5:] != b[:, 5:], axis=-1))


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_do_not_see_one_another(family):
    dims = small(family)
    params = transformer.init(jax.random.key(0), dims)
    tokens_1L = jax.random.randint(jax.random.key(1), (1, 9), 0, dims.vocab)
    segment_1L = jnp.array([[1, 1, 1, 1, 2, 2, 2, 2, 2]])
    position_1L = jnp.array([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    packed = hidden(params, dims, tokens_1L, segment_1L, position_1L)
    np.testing.assert_allclose(packed[:, :4], hidden(params, dims, tokens_1L[:, :4]), atol=1e-5)
    np.testing.assert_allclose(packed[:, 4:], hidden(params, dims, tokens_1L[:, 4:]), atol=1e-5)


@pytest.mark.parametrize("remat", [name for name in transformer.REMAT if name != "none"])
def test_remat_changes_nothing(tiny, remat):
    dims, params = tiny
    tokens_BL = jax.random.randint(jax.random.key(1), (2, 7), 0, dims.vocab)

    def value(params, remat):
        return jnp.sum(hidden(params, dims, tokens_BL, remat=remat) ** 2)

    plain = jax.grad(value)(params, "none")
    saved = jax.grad(value)(params, remat)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), plain, saved)
