"""The two-step gradient against one plain backward pass through all logits at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import loss, make_objective
from disco_jax.types import Batch
from disco_jax.update import packing
from disco_jax.update.gradient import Gradient
from disco_jax.update.passes import Passes

TEMPERATURE = 0.7
# (rows, row tokens, mesh): micro-batches that hold one to all of the twelve sequences
VARIANTS = {
    "1 micro-batch": (12, 13, (1, 1, 1)),
    "3 micro-batches": (4, 13, (1, 1, 1)),
    "packed": (2, 40, (1, 1, 1)),
    "a sequence each": (1, 13, (1, 1, 1)),
    "2 devices": (2, 29, (1, 2, 1)),
    "4 devices": (4, 20, (2, 1, 2)),
    "8 devices, fsdp": (8, 17, (1, 8, 1)),
    "8 devices, tensor": (2, 40, (1, 2, 4)),
    "8 devices, all axes": (4, 26, (2, 2, 2)),
}


def objective(method: str):
    return make_objective(**METHODS[method], questions="all")


def dense(params, dims, rollouts):
    """logp_QNT and entropy_QNT by the textbook: one row a response, all logits at once."""
    Q, N, T = rollouts.tokens_QNT.shape
    P = rollouts.prompt_QP.shape[1]
    prompt_MP = jnp.repeat(jnp.asarray(rollouts.prompt_QP), N, axis=0)
    tokens_ML = jnp.concatenate([prompt_MP, rollouts.tokens_QNT.reshape(Q * N, T)], axis=1)
    first_M1 = P - jnp.repeat(jnp.asarray(rollouts.prompt_length_Q), N)[:, None]
    position_ML = jnp.arange(P + T)[None] - first_M1
    segment_ML = (position_ML >= 0).astype(jnp.int32)
    hidden_MLD = transformer.hidden_states(
        params, dims, tokens_ML, jnp.maximum(position_ML, 0), segment_ML,
        dtype=jnp.float32, remat="none",
    )  # fmt: skip
    logits_MTV = hidden_MLD[:, P - 1 : -1] @ transformer.head_weights(params, dims) / TEMPERATURE
    logp_MTV = jax.nn.log_softmax(logits_MTV)
    chosen_MT1 = jnp.take_along_axis(logp_MTV, tokens_ML[:, P:, None], axis=-1)
    entropy_MT = -jnp.sum(jnp.exp(logp_MTV) * logp_MTV, axis=-1)
    return chosen_MT1.reshape(Q, N, T), entropy_MT.reshape(Q, N, T)


@pytest.fixture(scope="module")
def batch(tiny, ragged):
    """A minibatch with a group all right, one all wrong, and a KL above delta."""
    dims, params = tiny
    logp_QNT, _ = dense(params, dims, ragged)
    rng = np.random.default_rng(5)
    mask_QNT = np.arange(8) < ragged.length_QN[..., None]
    reward_QN = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 1]], np.float32)
    old_QNT = logp_QNT + 0.02 + 0.05 * rng.standard_normal(logp_QNT.shape)
    ref_QNT = logp_QNT + 0.1 * rng.standard_normal(logp_QNT.shape)
    garbage = np.where(mask_QNT, 0, np.inf)
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32 if x.dtype != bool else bool),
        Batch(mask_QNT, reward_QN, old_QNT + garbage, ref_QNT - garbage),
    )


@functools.lru_cache
def passes(dims, variant: str) -> Passes:
    _, _, shape = VARIANTS[variant]
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    return Passes(
        dims, mesh, shape=(4, 3, 8), temperature=TEMPERATURE, dtype=jnp.float32, remat="full",
        chunk=11,
    )  # fmt: skip


def assert_same_gradient(found, expected, tolerance):
    scale = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(expected)))
    gap = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), found, expected)
    error = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(gap)))
    assert error <= tolerance * scale, f"relative error {error / scale:.1e}"


@pytest.fixture(scope="module")
def reference(tiny, ragged, batch):
    """Method -> (gradient, metrics) by one backward pass through `dense`."""
    dims, params = tiny
    forward = jax.jit(lambda params: jax.vjp(lambda p: dense(p, dims, ragged), params))
    (logp_QNT, entropy_QNT), pull_back = forward(params)
    found = {}
    for method in METHODS:
        scalar = functools.partial(loss, objective(method))
        slope = jax.jit(
            jax.grad(lambda a, e, b, f=scalar: f(a, b, e), argnums=(0, 1), has_aux=True)
        )
        slopes, metrics = slope(logp_QNT, entropy_QNT, batch)
        found[method] = (pull_back(slopes)[0], metrics)
    return found


@functools.lru_cache
def slopes_of(method: str, dims):
    return Gradient(passes(dims, "1 micro-batch"), objective(method), single=False).slopes


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_method_is_exact_for_every_packing_and_mesh(tiny, ragged, batch, reference, variant):
    dims, params = tiny
    rows, row_tokens, _ = VARIANTS[variant]
    through = passes(dims, variant)
    micros = packing.pack(ragged, row_tokens, rows)
    micros = jax.device_put(micros, meshes.rows(through.mesh))
    placed = jax.device_put(params, meshes.shardings(through.mesh, params))
    figures = jax.device_get(through.figures(placed, micros))
    for method, (expected, metrics) in reference.items():
        slopes, found_metrics = slopes_of(method, dims)(figures, batch)
        found = through.pull_back(placed, micros, jax.device_get(slopes))
        # The hinge's slope is beta (KL - delta): the float32 noise of a KL of 0.02 is 1e-5 of it.
        assert_same_gradient(found, expected, 2e-5)
        for name, mean in metrics.items():
            np.testing.assert_allclose(
                found_metrics[name].value, mean.value, rtol=1e-4, atol=1e-6, err_msg=name
            )


@pytest.mark.parametrize("method", ["disco_logl", "grpo_er"])
def test_one_program_for_one_micro_batch_is_the_same_gradient(tiny, ragged, batch, method):
    dims, params = tiny
    (micro,) = micros = packing.pack(ragged, 13, 12)
    through = passes(dims, "1 micro-batch")
    two_step, _ = Gradient(through, objective(method), single=False)(params, [micro], batch)
    whole, _ = Gradient(through, objective(method), single=True)(params, micros, batch)
    assert_same_gradient(whole, two_step, 2e-5)


def test_adding_up_micro_batch_losses_would_be_wrong(tiny, ragged, batch):
    """The reason for two steps: the hinge of a micro-batch's KL is not that of the minibatch's."""
    dims, params = tiny
    chosen = objective("disco_b_logl")

    def part_loss(params, q):
        logp_QNT, _ = dense(params, dims, ragged)
        part = jax.tree.map(lambda x: x[q : q + 1], batch)
        return loss(chosen, logp_QNT[q : q + 1], part)[0] / 4

    def accumulated(params):
        return sum(part_loss(params, q) for q in range(4))

    micros = packing.pack(ragged, 13, 4)
    exact, _ = Gradient(passes(dims, "3 micro-batches"), chosen, single=False)(
        params, micros, batch
    )
    wrong = jax.grad(accumulated)(params)
    with pytest.raises(AssertionError, match="relative error"):
        assert_same_gradient(wrong, exact, 0.01)


def test_packing_places_every_token_once(ragged):
    micros = packing.pack(ragged, row_tokens=20, rows=3)
    Q, N, T = ragged.tokens_QNT.shape
    seen = []
    for micro in micros:
        assert micro.tokens_BL.shape == (3, 20)
        for row in range(3):
            for segment in range(1, micro.segment_BL[row].max() + 1):
                inside = micro.segment_BL[row] == segment
                targets = micro.target_BL[row][inside]
                index = micro.index_BL[row][inside]
                answered = index < Q * N * T
                q, n, _ = np.unravel_index(index[answered][0], (Q, N, T))
                length, prompt = ragged.length_QN[q, n], ragged.prompt_length_Q[q]
                expected = [*ragged.prompt_QP[q, -prompt:], *ragged.tokens_QNT[q, n, :length]]
                assert micro.tokens_BL[row][inside].tolist() == expected[:-1]
                assert targets.tolist() == expected[1:]
                assert micro.position_BL[row][inside].tolist() == list(range(len(expected) - 1))
                assert answered.sum() == length
                seen.extend(index[answered].tolist())
        padding = micro.segment_BL == 0
        assert (micro.index_BL[padding] == Q * N * T).all()
    mask_QNT = np.arange(T) < ragged.length_QN[..., None]
    assert sorted(seen) == np.flatnonzero(mask_QNT).tolist()


def test_packing_wastes_little_on_long_ragged_responses():
    rng = np.random.default_rng(0)
    T, N, Q = 8192, 8, 32
    length_QN = np.clip(rng.geometric(1 / 3000, (Q, N)), 1, T).astype(np.int32)
    rollouts = packing.Rollouts(
        np.zeros((Q, 1024), np.int32),
        rng.integers(50, 400, Q).astype(np.int32),
        np.zeros((Q, N, T), np.int32),
        length_QN,
        np.ones((Q, N), bool),
        np.zeros((Q, N, T), np.float32),
    )
    micros = packing.pack(rollouts, row_tokens=9216, rows=1)
    filled = sum(int((m.segment_BL > 0).sum()) for m in micros)
    assert 1 - filled / (len(micros) * 9216) < 0.05


def test_packing_refuses_what_does_not_fit(ragged):
    with pytest.raises(ValueError, match="row_tokens=12 is shorter than a sequence of 13"):
        packing.pack(ragged, row_tokens=12, rows=4)
