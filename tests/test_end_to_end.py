"""The whole loop on the embedded policy, in processes of its own: killed, stopped, resumed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 6
SMALL = [
    f"--config.steps={STEPS}",
    "--config.questions=4",
    "--config.responses=4",
    "--config.minibatches=2",
    "--config.data.heldout=arithmetic(split='heldout', size=8, levels=(1, 2), digits=1)",
    "--config.data.train=arithmetic(split='train', size=64, levels=(1, 2), digits=1)",
    "--config.eval.samples=2",
    "--config.eval.every=3",
    "--config.checkpoint.every=2",
    "--config.log.rollouts_every=1",
    "--config.rollout.slots=16",
    "--config.rollout.max_tokens=40",
    "--config.packing.rows=4",
]
CLOCKS = ("wall_s", "speed/", "time/")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Processes share compiled programs; each still runs its own."""
    cache = tmp_path_factory.mktemp("compiled")
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def start(workdir, environment, *arguments):
    command = [sys.executable, "-m", "disco_jax.train", "--config=configs/arithmetic.py"]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}", *SMALL, *arguments],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process) -> str:
    _, text = process.communicate(timeout=500)
    assert process.returncode == 0, text
    return text


def rows(workdir, name="metrics.jsonl"):
    found = [json.loads(line) for line in (workdir / name).read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(CLOCKS)} for row in found]


def wait_for_step(workdir, step, process):
    """Returns once the row of a training step is on file."""
    while process.poll() is None:
        path = workdir / "metrics.jsonl"
        if path.exists() and any(
            f'{{"step": {step}, "kind": "train"' in line for line in path.read_text().splitlines()
        ):
            return
        time.sleep(0.01)
    pytest.fail(f"ended before step {step}: {process.communicate()[1]}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, environment):
    """A run that nothing interrupts: (workdir, what it printed)."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, finish(start(workdir, environment))


@pytest.mark.slow
def test_a_run_leaves_what_it_promises(whole):
    workdir, text = whole
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert summary["recompiles_after_step_2"] == 0
    assert summary["pass1_before_interval"][0] <= summary["pass1_before"]
    assert summary["pass1_after"] <= summary["pass1_after_interval"][1]
    kinds = [(row["step"], row["kind"]) for row in rows(workdir)]
    train = [(step, "train") for step in range(1, STEPS + 1)]
    assert sorted(kinds) == sorted([(0, "eval"), (3, "eval"), (STEPS, "eval"), *train])
    assert len(rows(workdir, "rollouts.jsonl")) == STEPS * 4
    assert "Content-Security-Policy" in (workdir / "report.html").read_text()
    assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "pass@1" in text and f"step {STEPS}/{STEPS}" in text
    assert {p.name for p in (workdir / "policy").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.slow
def test_killed_and_stopped_runs_end_with_the_same_parameters(whole, tmp_path, environment):
    expected, _ = whole
    process = start(tmp_path, environment)
    wait_for_step(tmp_path, 1, process)
    process.kill()
    process.communicate()  # also closes the pipe

    process = start(tmp_path, environment)
    wait_for_step(tmp_path, 3, process)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=500)
    assert process.returncode == 75, text
    assert "the same command continues the run" in text

    process = start(tmp_path, environment)
    wait_for_step(tmp_path, 5, process)
    process.kill()
    process.communicate()  # also closes the pipe

    text = finish(start(tmp_path, environment))
    assert "continuing after step" in text
    policy = "policy/model.safetensors"
    assert (tmp_path / policy).read_bytes() == (expected / policy).read_bytes()
    assert rows(tmp_path) == rows(expected)
    assert rows(tmp_path, "rollouts.jsonl") == rows(expected, "rollouts.jsonl")


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(whole, environment):
    workdir, _ = whole
    before = rows(workdir)
    finish(start(workdir, environment))
    assert rows(workdir) == before


@pytest.mark.slow
def test_a_workdir_keeps_its_configuration(whole, environment):
    workdir, _ = whole
    process = start(workdir, environment, "--config.optimizer.learning_rate=0.5")
    _, text = process.communicate(timeout=500)
    assert process.returncode == 2
    assert "config.optimizer.learning_rate: " in text and "-> 0.5" in text
    assert "Traceback" not in text
