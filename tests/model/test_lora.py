"""Adapters: start at nothing, train alone, and merge into what they computed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import lora, transformer
from disco_jax.model import mesh as meshes
from disco_jax.model.lora import Lora
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

SPEC = Lora(rank=2, alpha=8.0, targets=("q", "v", "down"))


def hidden(params, dims):
    tokens_BL = jax.random.randint(jax.random.key(1), (2, 7), 0, dims.vocab)
    position_BL, segment_BL = jnp.tile(jnp.arange(7), (2, 1)), jnp.ones((2, 7), jnp.int32)
    return transformer.hidden_states(
        params, dims, tokens_BL, position_BL, segment_BL, dtype=jnp.float32, remat="none"
    )


def difference(a, b):
    return max(np.max(np.abs(x - y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def test_an_untrained_adapter_changes_nothing(tiny):
    dims, params = tiny
    policy = lora.Adapted(params, lora.init(SPEC, params, jax.random.key(0)))
    np.testing.assert_array_equal(hidden(lora.attach(SPEC, policy), dims), hidden(params, dims))
    assert difference(lora.merge(SPEC, policy), params) == 0


def test_merged_it_computes_what_it_computed_applied(tiny):
    dims, params = tiny
    adapters = lora.init(SPEC, params, jax.random.key(0))
    adapters = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape), adapters
    )
    policy = lora.Adapted(params, adapters)
    applied = hidden(lora.attach(SPEC, policy), dims)
    assert np.max(np.abs(applied - hidden(params, dims))) > 0.1
    np.testing.assert_allclose(
        hidden(lora.merge(SPEC, policy), dims), applied, rtol=1e-4, atol=1e-5
    )


def make_updater(dims, shape=(1, 1, 1), spec=SPEC, method="disco_logl", single=False):
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    passes = Passes(
        dims, mesh, shape=(2, 3, 8), temperature=0.7, dtype=jnp.float32, remat="none", chunk=8,
        lora=spec,
    )  # fmt: skip
    objective = make_objective(**METHODS[method], questions="all")
    optimizer = make_optimizer(
        learning_rate=1e-2, warmup_steps=0, b1=0.9, b2=0.999, eps=1e-2, weight_decay=0.0,
        clip_norm=1.0,
    )  # fmt: skip
    gradient = Gradient(passes, objective, single=single)
    return Updater(gradient, optimizer, row_tokens=13, rows=6 if single else 4)


def one_step(updater, params, rollouts):
    reward_QN = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]], np.float32)
    return updater.step(updater.init(params), rollouts, reward_QN)[0]


def test_a_step_trains_the_adapters_and_nothing_else(tiny, ragged):
    dims, params = tiny
    updater = make_updater(dims)
    state = one_step(updater, params, ragged)
    assert set(state.params["layers"]) == {
        f"{name}_lora_{part}" for name in SPEC.targets for part in "ab"
    }
    assert list(state.params) == ["layers"]
    moments = sum(x.size for x in jax.tree.leaves(state.opt_state))
    assert moments == 2 * sum(x.size for x in jax.tree.leaves(state.params)) + 2  # two counts
    assert difference(updater.base, params) == 0
    merged = updater.merged(state.params)
    for name, matrix in merged["layers"].items():
        changed = np.any(np.asarray(matrix) != np.asarray(params["layers"][name]))
        assert changed == (name in SPEC.targets), name
    assert difference(merged["embed"], params["embed"]) == 0


@pytest.mark.parametrize("variant", [{"shape": (1, 2, 2)}, {"single": True}], ids=str)
def test_mesh_and_micro_batches_make_no_difference(tiny, ragged, variant):
    dims, params = tiny
    expected = one_step(make_updater(dims), params, ragged).params
    found = one_step(make_updater(dims, **variant), params, ragged).params
    assert difference(jax.device_get(found), jax.device_get(expected)) < 1e-4


def test_the_reference_is_the_base(tiny, ragged):
    dims, params = tiny
    updater = make_updater(dims, method="grpo")
    updater.init(params)
    assert updater.ref_params is updater.base


def test_the_base_is_held_in_the_dtype_it_is_used_in(tiny):
    _, params = tiny
    base = lora.freeze(params, jnp.bfloat16)
    assert base["layers"]["q"].dtype == base["embed"].dtype == jnp.bfloat16
    assert base["layers"]["attn_norm"].dtype == base["final_norm"].dtype == jnp.float32


@pytest.mark.parametrize("targets", [(), ("q", "head")])
def test_unknown_targets_are_refused(targets):
    with pytest.raises(ValueError, match="must be some of q, k, v, o, gate, up, down"):
        dataclasses.replace(SPEC, targets=targets)
