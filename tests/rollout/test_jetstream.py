"""Our engine under JetStream's own Driver and server: `make test-jetstream` installs them."""

import dataclasses
import importlib.util
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax import setup
from disco_jax.data import prompts, questions
from disco_jax.model import mesh as meshes
from disco_jax.model import weights
from disco_jax.rollout import sampling, scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling

if importlib.util.find_spec("jetstream") is None:
    pytest.skip("the extra [jetstream] is not installed", allow_module_level=True)

from disco_jax.rollout import jetstream_client, jetstream_driver

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONE_DEVICE = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
SEED = 5
CONFIG = EngineConfig(
    prompt_tokens=6,
    max_tokens=9,
    slots=4,
    prefill_questions=1,
    steps_per_dispatch=4,
    sampling=Sampling(temperature=0.8),
    eos_ids=(2, 3),
    pad_id=0,
    dtype=jnp.float32,
    least_slots=4,
    least_columns=4,
)
EMBEDDED = dataclasses.replace(CONFIG, prompt_tokens=40, max_tokens=48, steps_per_dispatch=16)


def one_device():
    return meshes.make_mesh((1, 1, 1), jax.devices()[:1])


def assert_same(found, expected):
    for name in ("prompt_QP", "prompt_length_Q", "tokens_QNT", "length_QN", "ended_QN"):
        array, wanted = getattr(found, name), getattr(expected, name)
        assert array.dtype == wanted.dtype, name
        np.testing.assert_array_equal(array, wanted, err_msg=name)
    np.testing.assert_allclose(found.logp_QNT, expected.logp_QNT, atol=2e-5)


@pytest.fixture(scope="module")
def some_prompts():
    rng = np.random.default_rng(0)
    length_Q = np.array([1, 6, 3, 4, 2], np.int32)
    prompt_QP = np.where(np.arange(6) >= 6 - length_Q[:, None], rng.integers(4, 32, (5, 6)), 0)
    return prompt_QP.astype(np.int32), length_Q


@pytest.fixture(scope="module")
def native(tiny, some_prompts):
    """(engine, params, keys, the scheduler's rollouts)."""
    dims, params = tiny
    engine = Engine(dims, CONFIG, one_device())
    params = engine.load_params(params)
    key_QN = sampling.response_keys(0, "train", 4, np.arange(5) + 100, 3)
    return engine, params, key_QN, scheduler.sample(engine, params, *some_prompts, key_QN)


def test_the_driver_returns_the_schedulers_tokens(native, some_prompts):
    engine, params, key_QN, expected = native
    seen = {}

    def finish(q, n, tokens):
        assert (q, n) not in seen
        seen[q, n] = tokens.tolist()

    found = jetstream_driver.sample(engine, params, *some_prompts, key_QN, finish)
    assert_same(found, expected)
    assert 0 < found.ended_QN.sum() < 15  # both ways of ending
    assert seen == {
        (q, n): found.tokens_QNT[q, n, : found.length_QN[q, n]].tolist()
        for q, n in np.ndindex(5, 3)
    }


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ({"slots": 1, "least_slots": 1, "steps_per_dispatch": 1}, (1, 1, 1)),
        ({"slots": 16, "prefill_questions": 5}, (2, 2, 1)),
    ],
    ids=str,
)
def test_slots_dispatches_and_replicas_do_not_change_them(
    tiny, native, some_prompts, change, shape
):
    dims, params = tiny
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    engine = Engine(dims, dataclasses.replace(CONFIG, **change), mesh)
    params = engine.load_params(params)
    found = jetstream_driver.sample(engine, params, *some_prompts, native[2])
    assert_same(found, native[3])


def test_jax_and_the_root_logger_are_left_alone(native, some_prompts):
    engine, params, key_QN, _ = native
    before = threading.active_count()
    jetstream_driver.sample(engine, params, *some_prompts, key_QN)
    assert threading.active_count() <= before
    assert not hasattr(jax, "tree_map")
    assert logging.getLogger().level == logging.WARNING
    assert not any(h.level == logging.DEBUG for h in logging.getLogger().handlers)


def test_a_failing_worker_raises_here_and_ends_nothing_else(native, some_prompts, monkeypatch):
    engine, params, key_QN, _ = native

    def broken(*_):
        raise FloatingPointError("no more room on the device")

    monkeypatch.setattr(engine, "generate_many", broken)
    with pytest.raises(RuntimeError, match="Driver failed: no more room on the device"):
        jetstream_driver.sample(engine, params, *some_prompts, key_QN)


def test_a_response_that_ends_between_two_looks_at_the_slots_is_no_failure():
    attempts = []

    class Worker:
        def once_unlucky(self, number):
            attempts.append(number)
            assert len(attempts) > 1, "At this point we must have some requests inserted"
            return "done"

    work = jetstream_driver.functools.partial(Worker().once_unlucky, 3)
    assert jetstream_driver._work(work) == "done"
    assert attempts == [3, 3]


@pytest.fixture(scope="module")
def embedded():
    return load_embedded()


def load_embedded():
    """(engine, params, tokenizer, problems) of the embedded policy."""
    folder = setup.ASSETS / "arithmetic"
    tokenizer = prompts.load_tokenizer(str(folder))
    dims = weights.read_dims(folder)
    config = dataclasses.replace(EMBEDDED, eos_ids=tokenizer.eos_ids, pad_id=tokenizer.pad_id)
    engine = Engine(dims, config, one_device())
    params = engine.load_params(weights.load(folder, dims))
    some = questions.load("arithmetic(split='heldout', size=6, levels=(1, 2), digits=1)")
    return engine, params, tokenizer, [q.problem for q in some]


def served_rollouts(embedded, first: int):
    """(prompts, rollouts): what a server must answer where the questions are its requests
    first, first + 1, ..."""
    engine, params, tokenizer, problems = embedded
    ids = [tokenizer.encode_prompt(problem) for problem in problems]
    padded = prompts.pad_prompts(ids, engine.config.prompt_tokens, tokenizer.pad_id)
    numbers = np.arange(first, first + len(ids))
    key_Q = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(SEED), numbers)
    return ids, scheduler.sample(engine, params, *padded, key_Q[:, None])


def test_the_embedded_policy_answers_the_same_through_the_driver(embedded):
    engine, params, tokenizer, problems = embedded
    ids = [tokenizer.encode_prompt(problem) for problem in problems]
    padded = prompts.pad_prompts(ids, engine.config.prompt_tokens, tokenizer.pad_id)
    key_QN = sampling.response_keys(SEED, "eval", 0, np.arange(len(ids)), 4)
    expected = scheduler.sample(engine, params, *padded, key_QN)
    assert_same(jetstream_driver.sample(engine, params, *padded, key_QN), expected)


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


def start(command: list[str]) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=ONE_DEVICE, stdout=pipe, stderr=pipe, text=True)


def wait_for(process: subprocess.Popen, text: str) -> None:
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"ended with {process.wait()}: {process.stderr.read()}")


def serve_command(port: int, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "disco_jax.serve", "--config=configs/arithmetic.py",
        "--model=arithmetic", f"--port={port}", f"--config.seed={SEED}",
        "--config.eval.temperature=0.8", "--config.eval.max_tokens=48", "--config.rollout.slots=4",
        *arguments,
    ]  # fmt: skip


def ask_on_the_command_line(port: int, question: str) -> subprocess.CompletedProcess:
    command = serve_command(port, f"--ask={question}")
    return subprocess.run(
        command, cwd=ROOT, env=ONE_DEVICE, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def served():
    """(port, process) of `python -m disco_jax.serve`; the last test of the module ends it."""
    port = free_port()
    process = start(serve_command(port))
    try:
        wait_for(process, "serving")
        yield port, process
    finally:
        process.kill()
        process.communicate()


def test_the_grpc_server_returns_the_schedulers_tokens(served, embedded):
    port, _ = served
    ids, expected = served_rollouts(embedded, first=0)
    eos_ids = embedded[2].eos_ids
    for q, prompt in enumerate(ids):
        found = sum(jetstream_client.ask(port, prompt, 48), [])
        tokens = expected.tokens_QNT[q, 0, : expected.length_QN[q, 0]].tolist()
        assert found == [t for t in tokens if t not in eos_ids]


def test_what_jetstream_would_end_the_process_for_is_refused(served, embedded):
    port, process = served
    prompt = embedded[2].encode_prompt("3+4")
    for bad in ([], prompt * 20, [10**6], [-1]):
        with pytest.raises(ConnectionError, match=r"1 to 40 fit, each in \[0, "):
            list(jetstream_client.ask(port, bad, 48))
    for most in (1, 5):
        assert len(sum(jetstream_client.ask(port, prompt, most), [])) <= most
    assert process.poll() is None


def test_a_question_is_answered_on_the_command_line(served, embedded):
    port, _ = served
    asked = ask_on_the_command_line(port, embedded[3][0])
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip(), asked.stderr


def test_ctrl_c_ends_the_server(served):
    port, process = served
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    stopping = errors.partition("stopping: asked to")
    assert stopping[1] and "Traceback" not in stopping[2]
    refused = ask_on_the_command_line(port, "3+4")
    assert refused.returncode != 0
    assert "UNAVAILABLE" in refused.stderr and "Traceback" not in refused.stderr


OWN_SERVER = """
import sys
import jax
from jetstream.core import config_lib, server_lib
sys.path.insert(0, "tests/rollout")
import test_jetstream as here
from disco_jax.rollout.jetstream import Adapter, Text
from disco_jax.rollout.jetstream_driver import amend
from disco_jax.rollout.jetstream_server import keys

engine, params, tokenizer, _ = here.load_embedded()
text = Text(tokenizer.encode_prompt, tokenizer.decode)
config = config_lib.ServerConfig(
    interleaved_slices=("cpu=1",),
    interleaved_engine_create_fns=(lambda _: Adapter(engine, params, keys(here.SEED), text),),
)
amend()
server = server_lib.run(
    port=int(sys.argv[1]), config=config, devices=jax.devices()[:1], jax_padding=False,
    credentials=server_lib.grpc.local_server_credentials(),
)
print("serving", flush=True)
server.wait_for_termination()
"""


def test_jetstreams_own_server_runs_the_adapter(embedded):
    """Nothing of ours but the engine: `server_lib.run`, its Driver, and text in and out."""
    _, _, tokenizer, problems = embedded
    _, expected = served_rollouts(embedded, first=0)
    port = free_port()
    process = start([sys.executable, "-c", OWN_SERVER, str(port)])
    try:
        wait_for(process, "serving")
        for q, problem in enumerate(problems):
            found = jetstream_client.ask_text(port, problem, 48)
            assert found == tokenizer.decode(expected.tokens_QNT[q, 0, : expected.length_QN[q, 0]])
    finally:
        process.kill()
        process.communicate()
