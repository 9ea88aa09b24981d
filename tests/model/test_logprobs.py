"""Chunked statistics of the output head against the naive form: values, gradients, memory, HLO."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import logprobs
from disco_jax.model import mesh as meshes

QWEN_VOCAB = 151_936
TEMPERATURE = 0.6
MESHES = [(1, 1, 1), (1, 2, 4), (2, 2, 2), (1, 1, 8), (1, 8, 1)]


def naive(hidden_BLD, head_DV, target_BL, temperature=TEMPERATURE):
    logits_BLV = hidden_BLD.astype(jnp.float32) @ head_DV.astype(jnp.float32) / temperature
    logp_BLV = jax.nn.log_softmax(logits_BLV)
    logp_BL = jnp.take_along_axis(logp_BLV, target_BL[..., None], axis=-1)[..., 0]
    return logp_BL, -jnp.sum(jnp.exp(logp_BLV) * logp_BLV, axis=-1)


@pytest.fixture(scope="module")
def case():
    """hidden, head, target, wanted, weight: 8 rows of 7 tokens, one row with nothing wanted."""
    keys = jax.random.split(jax.random.key(0), 5)
    wanted_BL = jax.random.bernoulli(keys[3], 0.6, (8, 7)).at[2].set(False)
    return (
        jax.random.normal(keys[0], (8, 7, 16)),
        jax.random.normal(keys[1], (16, 32)),
        jax.random.randint(keys[2], (8, 7), 0, 32),
        wanted_BL,
        jax.random.normal(keys[4], (8, 7)),
    )


def scalar(form, wanted_BL, weight_BL, entropy):
    """A function of (hidden, head): some weighting of the figures, 0 where none is wanted."""

    def value(hidden_BLD, head_DV):
        logp_BL, entropy_BL = form(hidden_BLD, head_DV)
        figure_BL = logp_BL + 0.3 * entropy_BL if entropy else logp_BL
        return jnp.sum(jnp.where(wanted_BL, weight_BL * figure_BL, 0))

    return jax.jit(jax.value_and_grad(value, argnums=(0, 1)))


def close(a, b, tolerance=2e-5):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b
    )


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("chunk", [1, 24, 64])
def test_values_and_gradients_equal_the_naive_form(case, chunk, entropy):
    hidden_BLD, head_DV, target_BL, wanted_BL, weight_BL = case

    def chunked(hidden_BLD, head_DV):
        stats = logprobs.token_stats(
            hidden_BLD, head_DV, target_BL, TEMPERATURE, chunk, wanted_BL=wanted_BL
        )
        return stats.logp_BL, stats.entropy_BL

    expected = scalar(lambda *x: naive(*x, target_BL), wanted_BL, weight_BL, entropy)
    found = scalar(chunked, wanted_BL, weight_BL, entropy)
    close(found(hidden_BLD, head_DV), expected(hidden_BLD, head_DV))


def test_every_token_is_wanted_unless_told_otherwise(case):
    hidden_BLD, head_DV, target_BL, wanted_BL, _ = case
    stats = logprobs.token_stats(hidden_BLD, head_DV, target_BL, TEMPERATURE, 5)
    logp_BL, entropy_BL = naive(hidden_BLD, head_DV, target_BL)
    _, entropy_raw_BL = naive(hidden_BLD, head_DV, target_BL, 1.0)
    close(stats, logprobs.TokenStats(logp_BL, entropy_BL, entropy_raw_BL))
    some = logprobs.token_stats(hidden_BLD, head_DV, target_BL, TEMPERATURE, 5, wanted_BL=wanted_BL)
    close(some, jax.tree.map(lambda x: jnp.where(wanted_BL, x, 0), stats))


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_split_over_a_mesh_it_is_the_same(case, shape):
    hidden_BLD, head_DV, target_BL, wanted_BL, weight_BL = case
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])

    def chunked(hidden_BLD, head_DV):
        stats = logprobs.token_stats(
            hidden_BLD, head_DV, target_BL, TEMPERATURE, 2, wanted_BL=wanted_BL, mesh=mesh
        )
        return stats.logp_BL, stats.entropy_BL

    expected = scalar(lambda *x: naive(*x, target_BL), wanted_BL, weight_BL, True)
    found = scalar(chunked, wanted_BL, weight_BL, True)
    close(found(hidden_BLD, head_DV), expected(hidden_BLD, head_DV))


def test_logits_are_float32_for_bfloat16_hidden_states(case):
    hidden_BLD, head_DV, target_BL, _, _ = case
    hidden_BLD = hidden_BLD.astype(jnp.bfloat16)
    head_DV = head_DV.astype(jnp.bfloat16).astype(jnp.float32)
    stats = logprobs.token_stats(hidden_BLD, head_DV, target_BL, TEMPERATURE, 16)
    close((stats.logp_BL, stats.entropy_BL), naive(hidden_BLD, head_DV, target_BL))


def compiled(shape, tokens, chunk, mesh):
    """The gradient's program at Qwen's vocabulary, and the size of its logits in bytes."""
    B, L, D = tokens
    rows, head = meshes.rows(mesh), meshes.shardings(mesh, {"head": jnp.zeros((D, 8))})["head"]
    abstract = (
        jax.ShapeDtypeStruct((B, L, D), jnp.float32, sharding=rows),
        jax.ShapeDtypeStruct((D, QWEN_VOCAB), jnp.float32, sharding=head),
        jax.ShapeDtypeStruct((B, L), jnp.int32, sharding=rows),
    )

    def value(hidden_BLD, head_DV, target_BL):
        stats = logprobs.token_stats(hidden_BLD, head_DV, target_BL, TEMPERATURE, chunk, mesh=mesh)
        return jnp.sum(stats.logp_BL + 0.3 * stats.entropy_BL)

    return jax.jit(jax.grad(value, argnums=(0, 1))).lower(*abstract).compile()


def test_no_array_of_tokens_by_vocabulary():
    mesh = meshes.make_mesh((1, 1, 1), jax.devices()[:1])
    B, L, D, chunk = 2, 128, 4, 8
    program = compiled((1, 1, 1), (B, L, D), chunk, mesh)
    logits, head = (4 * n * QWEN_VOCAB for n in (B * L, D))
    temporary = program.memory_analysis().temp_size_in_bytes
    assert temporary < logits / 4 + 2 * head, f"{temporary / 2**20:.0f} MiB"
    shapes = set(re.findall(r"\[([\d,]*\b151936\b[\d,]*)\]", program.as_text()))
    assert f"{chunk},{QWEN_VOCAB}" in shapes
    for shape in shapes:
        sizes = [int(size) for size in shape.split(",")]
        assert np.prod(sizes) <= max(chunk, D) * QWEN_VOCAB, shape


def test_a_split_vocabulary_is_never_gathered():
    mesh = meshes.make_mesh((1, 2, 4))
    program = compiled((1, 2, 4), (2, 16, 4), 8, mesh)
    text = program.as_text()
    assert str(QWEN_VOCAB // 4) in text
    assert not re.search(rf"\b{QWEN_VOCAB}\b", text)
    # Inside the loops only figures of tokens cross devices, never logits.
    for line in text.splitlines():
        if re.search(r"= .*all-reduce\(", line) and "/while/" in line:
            assert str(QWEN_VOCAB // 4) not in line.split("all-reduce(")[0], line


def test_a_vocabulary_that_does_not_divide_is_refused(case):
    hidden_BLD, head_DV, target_BL, _, _ = case
    mesh = meshes.make_mesh((1, 2, 4))
    with pytest.raises(ValueError, match=r"tensor=4 must divide the model's vocabulary of 30"):
        logprobs.token_stats(hidden_BLD, head_DV[:, :30], target_BL, 1.0, 8, mesh=mesh)
