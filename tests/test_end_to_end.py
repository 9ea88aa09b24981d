"""The whole loop on the embedded policy, in processes of its own: killed, stopped, resumed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from disco_jax.data import questions
from disco_jax.eval import responses

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 6
TRAIN = "arithmetic(split='train', size=64, levels=(1, 2), digits=1)"
SMALL = [
    f"--config.steps={STEPS}",
    "--config.questions=4",
    "--config.responses=4",
    "--config.minibatches=2",
    "--config.data.heldout=arithmetic(split='heldout', size=8, levels=(1, 2), digits=1)",
    f"--config.data.train={TRAIN}",
    "--config.eval.samples=2",
    "--config.eval.every=3",
    "--config.checkpoint.every=2",
    "--config.log.rollouts_every=1",
    "--config.rollout.slots=16",
    "--config.rollout.max_tokens=40",
    "--config.packing.rows=4",
    # Choices of questions that a restart has to make again.
    "--config.rollout.refills=1",
    "--config.data.order=easy_first(start=0.3, steps=4)",
]
CLOCKS = ("wall_s", "speed/", "time/")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts a run in a process. All share compiled programs, and the rates of the curriculum."""
    folder = tmp_path_factory.mktemp("shared")
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    measured = [
        responses.Response(q.id, s, "", 1, True, s < i % 4, None)
        for i, q in enumerate(questions.load(TRAIN))
        for s in range(3)
    ]
    responses.rewrite(folder / "rates.jsonl", responses.header([], 3, {}), measured)

    def start(workdir, *arguments):
        command = [sys.executable, "-m", "disco_jax.train", "--config=configs/arithmetic.py"]
        rates = f"--config.data.success={folder / 'rates.jsonl'}"
        return subprocess.Popen(
            [*command, f"--workdir={workdir}", *SMALL, rates, *arguments],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


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
def whole(tmp_path_factory, start):
    """A run that nothing interrupts: (workdir, what it printed)."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, finish(start(workdir))


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
    scores = {row["step"]: row["eval/pass1"] for row in rows(workdir) if row["kind"] == "eval"}
    assert summary["best_pass1"] == max(scores.values()) == scores[summary["best_step"]]
    assert summary["best_selected_on"] == "validation set (data.heldout)"
    selection = json.loads((workdir / "policy_best" / "selection.json").read_text())
    assert selection["best_step"] == summary["best_step"]
    same = (workdir / "policy_best" / "model.safetensors").read_bytes() == (
        workdir / "policy" / "model.safetensors"
    ).read_bytes()
    assert same == (summary["best_step"] == STEPS)
    for step in scores:
        saved = responses.read(workdir / "evaluations" / f"step-{step}" / "heldout.jsonl")[1]
        assert len(saved) == 8 * 2
        assert sum(r.correct for r in saved.values()) / 16 == scores[step]
    asked = [row["rollout/questions"] for row in rows(workdir) if row["kind"] == "train"]
    assert set(asked) <= {4, 8} and max(asked) == 8, "no step was refilled"
    assert "Content-Security-Policy" in (workdir / "report.html").read_text()
    assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "pass@1" in text and f"step {STEPS}/{STEPS}" in text
    assert {p.name for p in (workdir / "policy").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.slow
def test_killed_and_stopped_runs_end_with_the_same_parameters(whole, start, tmp_path):
    expected, _ = whole
    process = start(tmp_path)
    wait_for_step(tmp_path, 1, process)
    process.kill()
    process.communicate()  # also closes the pipe

    process = start(tmp_path)
    wait_for_step(tmp_path, 3, process)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=500)
    assert process.returncode == 75, text
    assert "the same command continues the run" in text

    process = start(tmp_path)
    wait_for_step(tmp_path, 5, process)
    process.kill()
    process.communicate()  # also closes the pipe

    text = finish(start(tmp_path))
    assert "continuing after step" in text
    policy = "policy/model.safetensors"
    assert (tmp_path / policy).read_bytes() == (expected / policy).read_bytes()
    assert rows(tmp_path) == rows(expected)
    assert rows(tmp_path, "rollouts.jsonl") == rows(expected, "rollouts.jsonl")
    best = "policy_best/model.safetensors"
    assert (tmp_path / best).read_bytes() == (expected / best).read_bytes()
    for path in expected.glob("evaluations/*/*.jsonl"):
        again = tmp_path / path.relative_to(expected)
        assert responses.read(again) == responses.read(path)


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(whole, start):
    workdir, _ = whole
    before = rows(workdir)
    finish(start(workdir))
    assert rows(workdir) == before


@pytest.mark.slow
def test_a_workdir_keeps_its_configuration(whole, start):
    workdir, _ = whole
    process = start(workdir, "--config.optimizer.learning_rate=0.5")
    _, text = process.communicate(timeout=500)
    assert process.returncode == 2
    assert "config.optimizer.learning_rate: " in text and "-> 0.5" in text
    assert "Traceback" not in text
