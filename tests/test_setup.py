"""Slots are shared by processes, and what training keeps is counted as it is made."""

import dataclasses

import jax
import numpy as np
import pytest

from configs import arithmetic
from disco_jax import processes, samplers, setup
from disco_jax.command import UserError
from disco_jax.model import mesh as meshes
from disco_jax.rollout import memory


@pytest.fixture
def config():
    config = arithmetic.get_config()
    config.mesh = (1, 8, 1)
    return config


@pytest.fixture
def model(config):
    return setup.find_model(config)


def own(mesh, devices):
    return processes.own_mesh(mesh, list(mesh.devices.flat)[:devices])


def test_the_mesh_of_a_process_keeps_the_tensor_axis_as_far_as_it_can():
    mesh = meshes.make_mesh((1, 2, 4))
    assert processes.own_mesh(mesh) is mesh  # all devices are this process's
    assert own(mesh, 4).devices.shape == (1, 1, 4)
    assert own(mesh, 2).devices.shape == (1, 1, 2)
    assert own(meshes.make_mesh((2, 4, 1)), 4).devices.shape == (1, 4, 1)


def test_slots_are_those_of_all_processes(config, model):
    mesh = setup.make_mesh(config)
    config.rollout.slots = 32

    def slots(devices):
        engine = samplers.make_engine(config, model, mesh, config.rollout, own=own(mesh, devices))
        assert engine.replicas == devices
        return engine.config.slots

    assert [slots(8), slots(4), slots(2)] == [32, 16, 8]


def test_devices_of_a_cpu_that_do_not_train_sample(config, model):
    config.mesh = (1, 1, 1)
    mesh = setup.make_mesh(config)
    assert mesh.devices.size == 1
    engine = samplers.make_engine(config, model, mesh, config.rollout)
    assert engine.replicas == 8 and engine.config.slots == config.rollout.slots
    params = setup.placed_weights(model, mesh)
    found = processes.own_arrays(processes.Copying(engine, mesh)(params), engine.mesh)
    expected = engine.load_params(params)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert len(a.sharding.device_set) == 8
        np.testing.assert_array_equal(a, b)


def test_devices_of_a_cpu_need_more_threads_than_can_wait(config, monkeypatch):
    monkeypatch.setenv("NPROC", "31")
    with pytest.raises(UserError, match="8 devices of one CPU .* NPROC=32"):
        setup.make_mesh(config)
    monkeypatch.setenv("NPROC", "32")
    assert setup.make_mesh(config).devices.size == 8


@pytest.mark.parametrize(
    "slots,near", [(12, "8 or 16"), (6, "8"), (25, "24 or 32")], ids=["over", "under", "odd"]
)
def test_slots_that_do_not_divide_are_refused(config, model, slots, near):
    mesh = setup.make_mesh(config)
    config.rollout.slots = slots
    with pytest.raises(
        UserError,
        match=rf"config.rollout.slots={slots} must be a multiple of 8: 2 processes of 4"
        rf".* set it to {near}$",
    ):
        samplers.make_engine(config, model, mesh, config.rollout, own=own(mesh, 4))


@pytest.mark.parametrize("change", ["none", "adapters", "offload", "reference", "both"])
def test_what_training_keeps_is_what_it_makes(config, model, change):
    """Bytes, shapes and places, against those of the arrays."""
    if change in ("adapters", "both"):
        config.model.lora_rank, config.model.dtype = 2, "bfloat16"
    if change == "offload":
        config.optimizer.offload = True
    if change in ("reference", "both"):
        config.objective.penalty = "kl_ref(beta=1e-3)"
    mesh = setup.make_mesh(config)
    updater = setup.make_updater(config, model, setup.read_objective(config), mesh)
    params = setup.placed_weights(model, mesh)
    found = updater.shapes(params)
    state = updater.init(params)

    def same(shape, x):
        assert (shape.shape, shape.dtype) == (x.shape, x.dtype)
        assert shape.sharding.is_equivalent_to(x.sharding, x.ndim), (shape, x.sharding)

    jax.tree.map(same, found, type(found)(updater.base, state))
    kept = [updater.base, state]
    if updater.ref_params is not updater.base:
        kept.append(updater.ref_params)
    first = mesh.devices.flat[0]
    held = sum(
        shard.data.nbytes
        for x in jax.tree.leaves(kept)
        if x.sharding.memory_kind != meshes.HOST_MEMORY
        for shard in x.addressable_shards
        if shard.device == first
    )
    assert samplers.training_bytes(config, model.dims, mesh) == held > 0


def test_slots_as_memory_allows_count_all_that_training_keeps(config, model):
    """Less is left beside a reference policy, more beside adapters, offloaded moments or a larger
    mesh, of which a process has a part."""
    config.rollout.slots, config.questions, config.responses = 0, 4096, 64
    config.rollout.max_tokens, config.mesh = 40, (1, -1, 1)
    dims = dataclasses.replace(model.dims, layers=8)
    model = model._replace(dims=dims)
    whole = meshes.make_mesh((1, 8, 1))
    here = own(whole, 2)
    weights = samplers.training_bytes(config, dims, meshes.make_mesh((1, 1, 1), jax.devices()[:1]))
    free = int(weights * 1.2 / 0.85)

    def slots(mesh=here, training=True):
        engine = samplers.make_engine(
            config, model, mesh, config.rollout, training=training, own=here, free=free
        )
        return engine.config.slots

    alone = slots()
    assert slots(training=False) > slots(whole) > alone
    config.optimizer.offload = True
    assert slots() > alone
    config.optimizer.offload = False
    config.objective.penalty = "kl_ref(beta=1e-3)"
    assert slots() < alone
    config.model.lora_rank = 2
    assert slots() > alone


def test_the_copy_for_all_processes_is_the_engines(config, model):
    """Matrices in the sampler's dtype, norms float32."""
    config.model.dtype = "bfloat16"
    mesh = setup.make_mesh(config)
    engine = samplers.make_engine(config, model, mesh, config.rollout)
    params = setup.placed_weights(model, mesh)
    copied = processes.Copying(engine, mesh)(params)
    jax.tree.map(np.testing.assert_array_equal, copied, engine.load_params(params))
    kinds = {
        ("norm" in jax.tree_util.keystr(path), str(x.dtype))
        for path, x in jax.tree_util.tree_leaves_with_path(copied)
    }
    assert kinds == {(True, "float32"), (False, "bfloat16")}


def test_free_memory_is_known():
    assert memory.free_bytes(meshes.make_mesh((1, 8, 1))) > 0
