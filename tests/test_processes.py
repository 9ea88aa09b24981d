"""Two processes of two devices each, joined by gloo, against one process of four."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from disco_jax import processes
from disco_jax.command import STOPPED, UserError

ROOT = pathlib.Path(__file__).resolve().parents[1]
SMALL = [
    "--config=configs/arithmetic.py",
    "--config.steps=4",
    "--config.questions=5",  # the shares are unequal
    "--config.responses=3",
    "--config.minibatches=1",
    "--config.data.train=arithmetic(split='train', size=64, levels=(1,), digits=1)",
    "--config.data.heldout=arithmetic(split='heldout', size=5, levels=(1,), digits=1)",
    "--config.eval.samples=2",
    "--config.checkpoint.every=2",
    "--config.log.rollouts_every=1",
    "--config.rollout.slots=8",
    "--config.rollout.max_tokens=32",
    "--config.packing.rows=1",
    "--config.reward.workers=1",
]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts a process of a run with some devices; they share compiled programs."""
    cache, started = tmp_path_factory.mktemp("compiled"), []

    def start(workdir, devices, *arguments, script=""):
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "NPROC": "32",  # see conftest.py
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"
            " --xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        command = ["-m", "disco_jax.train", f"--workdir={workdir}", *SMALL]
        process = subprocess.Popen(
            [sys.executable, *(["-c", script] if script else command), *arguments],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:  # a failed test leaves some behind
        process.kill()
        process.communicate()


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def pair(start, workdir):
    address = free_address()
    return [start(workdir, 2, f"--distributed={address},2,{index}") for index in range(2)]


def ends(running) -> list[int]:
    for process in running:
        _, text = process.communicate(timeout=700)
        if process.returncode not in (0, STOPPED):
            pytest.fail(text)
    return [process.returncode for process in running]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_two_processes_are_one_run_and_stop_together(tmp_path, start):
    one, two = tmp_path / "one", tmp_path / "two"
    assert ends([start(one, 4)]) == [0]
    running = pair(start, two)
    while (
        not (two / "metrics.jsonl").exists() or '"train"' not in (two / "metrics.jsonl").read_text()
    ):
        assert all(process.poll() is None for process in running), ends(running)
        time.sleep(0.05)
    running[1].send_signal(signal.SIGTERM)  # to one of them: both must stop after the same step
    assert ends(running) == [STOPPED, STOPPED]
    assert ends(pair(start, two)) == [0, 0]

    expected, found = (lines(folder / "rollouts.jsonl") for folder in (one, two))
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    # Parameters of other meshes differ in the last bits, so later responses may differ in a token.
    first = [row for row in expected if row["step"] == 1]
    assert [row for row in found if row["step"] == 1] == first
    evaluations = [folder / "evaluations/step-0/heldout.jsonl" for folder in (one, two)]
    texts = [{(r.get("question"), r.get("sample")): r for r in lines(p)[1:]} for p in evaluations]
    assert texts[0] == texts[1]
    kinds = [[(row["step"], row["kind"]) for row in lines(f / "metrics.jsonl")] for f in (one, two)]
    assert kinds[0] == kinds[1]
    policies = [load_file(folder / "policy/model.safetensors") for folder in (one, two)]
    for name, value in policies[0].items():
        np.testing.assert_allclose(policies[1][name], value, rtol=1e-3, atol=2e-4, err_msg=name)


COPY = """
import sys
import jax, numpy as np
from configs import arithmetic
from disco_jax import command, processes, samplers, setup

processes.start(sys.argv[1])
config = arithmetic.get_config()
config.model.dtype, config.rollout.slots = "bfloat16", 16
mesh, model = setup.make_mesh(config), setup.find_model(config)
engine = samplers.make_engine(config, model, mesh, config.rollout, training=True)
assert (engine.config.slots, engine.mesh.devices.size) == (8, 2)
found = processes.Copying(engine, mesh)(setup.placed_weights(model, mesh))
found = processes.own_arrays(found, engine.mesh)
expected = engine.load_params(setup.placed_weights(model, engine.mesh))
for x, y in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    assert x.dtype == y.dtype and x.sharding == y.sharding, (x.sharding, y.sharding)
    np.testing.assert_array_equal(x, y)
config.rollout.slots = 18
try:
    samplers.make_engine(config, model, mesh, config.rollout)
    sys.exit("not refused")
except command.UserError as error:
    assert "slots=18 must be a multiple of 4: 2 processes of 2" in str(error), error
"""


def test_each_process_has_its_share_of_slots_and_a_copy_in_the_samplers_dtype(start):
    address = free_address()
    ends([start(None, 2, f"{address},2,{index}", script=COPY) for index in range(2)])


@pytest.mark.parametrize("text", ["yes", "localhost:1,2", "localhost,2,0", "localhost:1,2,2"])
def test_a_cluster_that_cannot_be_is_refused(text):
    with pytest.raises(UserError, match="ADDRESS:PORT,COUNT,INDEX"):
        processes.start(text)
