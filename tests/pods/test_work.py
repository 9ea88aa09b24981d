"""Arithmetic counted by hand is what the compiler counts where it can, without loops."""

import jax
import jax.numpy as jnp
import pytest

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.pods import known, work

DIMS = ModelDims(
    family="qwen2", vocab=512, width=256, layers=1, heads=4, kv_heads=2, head_dim=64, mlp=1024,
    max_position=4096,
)  # fmt: skip


@pytest.mark.parametrize("name,billions", list(zip(known.MODELS, (1.78, 7.62, 8.03), strict=True)))
def test_sizes_of_the_papers_models(name, billions):
    assert known.parameters(known.MODELS[name]) / 1e9 == pytest.approx(billions, abs=0.006)


@pytest.mark.parametrize("family,tied", [("qwen2", False), ("llama", True), ("qwen3", False)])
def test_parameters_are_those_of_init(family, tied):
    dims = ModelDims(**{**vars(DIMS), "family": family, "tied": tied})
    shapes = jax.eval_shape(lambda: transformer.init(jax.random.key(0), dims))
    assert known.parameters(dims) == sum(x.size for x in jax.tree.leaves(shapes))


def test_forward_flops_against_the_compiler():
    """One layer, short rows: the head and the layers' products are nearly all there is."""
    B, L = 4, 64

    def figures(params, tokens_BL):
        position_BL = jnp.broadcast_to(jnp.arange(L), (B, L))
        hidden_BLD = transformer.hidden_states(
            params, DIMS, tokens_BL, position_BL, jnp.ones_like(tokens_BL),
            dtype=jnp.float32, remat="none", scan=False,
        )  # fmt: skip
        return hidden_BLD @ transformer.head_weights(params, DIMS)

    params = jax.eval_shape(lambda: transformer.init(jax.random.key(0), DIMS))
    tokens = jax.ShapeDtypeStruct((B, L), jnp.int32)
    counted = jax.jit(figures).lower(params, tokens).compile().cost_analysis()["flops"]
    by_hand = work.forward(DIMS, work.Load(B * L, B * L, L, 1)).executed
    assert by_hand == pytest.approx(counted, rel=0.05)
    backward = work.backward(DIMS, work.Load(B * L, B * L, L, 1), "full")
    assert backward.useful == 3 * by_hand and backward.executed > backward.useful
