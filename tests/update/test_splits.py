"""One minibatch on eight devices, whole or in three or eight micro-batches: the same gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import mesh as meshes
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.types import Batch, Rollouts
from disco_jax.update import packing
from disco_jax.update.gradient import Gradient
from disco_jax.update.passes import Passes

Q, N, P, T = 8, 8, 2, 4
ROW = P + T - 1  # no row has room for two of these sequences
ROWS = {1: 64, 3: 24, 8: 8}  # micro-batches -> rows of each


@pytest.fixture(scope="module")
def reward_QN():
    """One question all right, one all wrong."""
    reward_QN = (np.random.default_rng(12).random((Q, N)) < 0.4).astype(np.float32)
    reward_QN[0], reward_QN[1] = 1, 0
    return reward_QN


@pytest.fixture(scope="module")
def rollouts(reward_QN):
    """64 responses of 3 or 4 tokens: each takes a row of its own.

    Right and wrong ones differ in their tokens, as they do in earnest: where they do not, the two
    halves of a gradient cancel and what is left is mostly rounding.
    """
    rng = np.random.default_rng(11)
    token_QNT = rng.integers(4, 18, (Q, N, T)) + 14 * (reward_QN[..., None] < 1).astype(int)
    length_QN = rng.integers(3, T + 1, (Q, N)).astype(np.int32)
    inside_QNT = np.arange(T) < length_QN[..., None]
    return Rollouts(
        rng.integers(4, 32, (Q, P)).astype(np.int32),
        np.full(Q, P, np.int32),
        np.where(inside_QNT, token_QNT, 0).astype(np.int32),
        length_QN,
        np.ones((Q, N), bool),
        np.zeros((Q, N, T), np.float32),
    )


@pytest.fixture(scope="module")
def splits(tiny, rollouts):
    """(passes, parameters on the mesh, {micro-batches: (packed, figures)})."""
    dims, params = tiny
    mesh = meshes.make_mesh((2, 4, 1), jax.devices())
    passes = Passes(
        dims, mesh, shape=(Q, N, T), temperature=0.7, dtype=jnp.float32, remat="full", chunk=16
    )
    placed = jax.device_put(params, meshes.shardings(mesh, params))
    found = {}
    for count, rows in ROWS.items():
        micros = packing.pack(rollouts, ROW, rows)
        assert len(micros) == count
        micros = jax.device_put(micros, meshes.rows(mesh))
        found[count] = micros, passes.figures(placed, micros)
    return passes, placed, found


def minibatch(rollouts, reward_QN, logp_QNT, lead: float) -> Batch:
    """pi_old's log-probabilities lie about `lead` above."""
    rng = np.random.default_rng(12)
    noise_QNT = rng.uniform(-0.1, 0.1, (Q, N, T))
    mask_QNT = np.arange(T) < rollouts.length_QN[..., None]
    old_QNT = np.asarray(logp_QNT) + lead + noise_QNT
    ref_QNT = np.asarray(logp_QNT) + 2 * noise_QNT
    return Batch(mask_QNT, reward_QN, old_QNT.astype(np.float32), ref_QNT.astype(np.float32))


@functools.lru_cache
def gradient(passes: Passes, method: str) -> Gradient:
    return Gradient(passes, make_objective(**METHODS[method]), single=False)


@pytest.mark.parametrize("lead", [-0.5, 0.5], ids=["within delta", "beyond delta"])
def test_the_split_does_not_matter(rollouts, reward_QN, splits, lead):
    passes, params, found = splits
    batch = minibatch(rollouts, reward_QN, found[1][1].logp_QNT, lead)
    for method in METHODS:
        whole = None
        for count, (micros, figures) in found.items():
            grads, metrics = gradient(passes, method)(params, micros, batch, figures)
            if "kl/over_delta" in metrics:
                assert bool(metrics["kl/over_delta"].value) == (lead > 0)
            flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.device_get(grads))])
            whole = flat if whole is None else whole
            error = np.linalg.norm(flat - whole) / np.linalg.norm(whole)
            print(method, count, error)
            continue
            assert error < 1e-6, f"{method} in {count} micro-batches: {error:.1e}"
