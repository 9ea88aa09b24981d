"""One step of two updates on meshes of one to eight devices: the same parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import mesh as meshes
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

# Every axis alone, and all of them together; test_gradient.py has further ones.
SHAPES = [(1, 2, 1), (1, 1, 4), (8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]
RATE = 1e-3


def make_updater(dims, shape, rows=8, **options) -> Updater:
    """Minibatches of two questions, in micro-batches that hold about half of one."""
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    passes = Passes(
        dims, mesh, shape=(2, 3, 8), temperature=0.7, dtype=jnp.float32, remat="none", chunk=4
    )
    objective = make_objective(**METHODS["disco_logl"], questions="all")
    # With epsilon large, a step is nearly linear in the gradient: rounding is not blown up.
    optimizer = make_optimizer(
        learning_rate=RATE, warmup_steps=0, b1=0.9, b2=0.999, eps=1e-2, weight_decay=0.01,
        clip_norm=1.0,
    )  # fmt: skip
    gradient = Gradient(passes, objective, single=False)
    return Updater(gradient, optimizer, row_tokens=13, rows=rows, **options)


def one_step(dims, params, rollouts, updater):
    reward_QN = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]], np.float32)
    params = jax.tree.map(jnp.copy, params)  # the step donates its state
    return updater.step(updater.init(params), rollouts, reward_QN)


@pytest.fixture(scope="module")
def alone(tiny, ragged):
    """The state after a step on one device, a sequence in each micro-batch."""
    dims, params = tiny
    return jax.device_get(one_step(dims, params, ragged, make_updater(dims, (1, 1, 1), rows=1)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_mesh_changes_no_parameter(tiny, ragged, alone, shape):
    dims, params = tiny
    updater = make_updater(dims, shape)
    state, metrics = one_step(dims, params, ragged, updater)
    expected, expected_metrics = alone
    # An update moves a parameter by up to RATE; what float32 loses is a small part of that.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=0.01 * RATE),
        jax.device_get(state.params),
        expected.params,
    )
    for name in expected_metrics.keys() - {"packing/waste"}:
        np.testing.assert_allclose(
            metrics[name].value, expected_metrics[name].value, rtol=1e-3, atol=1e-5, err_msg=name
        )
    check_placement(state, updater.mesh)


def check_placement(state, mesh):
    """Every parameter lies where the table says, and its two moments lie with it."""
    wanted = meshes.shardings(mesh, state.params)
    jax.tree.map(lambda x, where: _same_place(x.sharding, where, x.ndim), state.params, wanted)
    moments = [x for x in jax.tree.leaves(state.opt_state, is_leaf=_is_moment) if _is_moment(x)]
    assert len(moments) == 2
    for moment in moments:
        jax.tree.map(lambda x, where: _same_place(x.sharding, where, x.ndim), moment, wanted)


def _is_moment(x):
    return isinstance(x, dict) and "embed" in x


def _same_place(found, wanted, ndim):
    assert found.is_equivalent_to(wanted, ndim), f"{found} instead of {wanted}"


def test_moments_wait_on_the_host(tiny, ragged, alone):
    dims, params = tiny
    state, _ = one_step(dims, params, ragged, make_updater(dims, (1, 2, 1), offload=True))
    kinds = {x.sharding.memory_kind for x in jax.tree.leaves(state.opt_state)}
    assert kinds == {"pinned_host"}
    assert {x.sharding.memory_kind for x in jax.tree.leaves(state.params)} == {"device"}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=0.01 * RATE),
        jax.device_get(state.params),
        alone[0].params,
    )


def test_offloading_is_refused_where_there_is_no_host_memory():
    class Device:
        platform = "abacus"

        def addressable_memories(self):
            return []

    mesh = type("Mesh", (), {"devices": np.array([Device()], object)})
    with pytest.raises(ValueError, match="optimizer.offload=True: abacus devices have no memory"):
        meshes.check_host_memory(mesh)
