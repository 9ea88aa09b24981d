"""Synthetic runs: figures follow a formula, so that a test knows what it must find."""

import json

import pytest

from disco_jax.report.html import write_report
from disco_jax.report.writers import MetricsWriter, RolloutWriter

DELTA = 1e-4
BASE = {"seed": 0, "steps": 1400, "objective": {"method": "disco_logl", "tau": 10.0}, "note": ""}


def train_row(step, **changed):
    row = {
        "reward/mean": 0.3 + 0.01 * step,
        "questions/all_right": 0.02 * step,
        "questions/all_wrong": 0.3 - 0.01 * step,
        "kl/mean": 8e-5,
        "kl/delta": DELTA,
        "entropy/mean": 0.5,
        "response/length": 60.0,
        "speed/tokens_per_s": 3200.0,
        "optim/lr": 1e-4,
    }
    return row | changed


def eval_row(pass1, **changed):
    row = {
        "eval/pass1": pass1,
        "eval/pass1_low": pass1 - 0.02,
        "eval/pass1_high": pass1 + 0.02,
        "eval/length": 55.0,
        "eval/truncated": 0.05,
        "eval/histogram": [3, 2, 1, 2, 4],
        "eval/level/easy": pass1 + 0.1,
        "eval/level/hard": pass1 - 0.1,
    }
    return row | changed


def response(text, reward, **changed):
    row = {"text": text, "reward": reward, "reason": "equal", "tokens": 7, "ended": True}
    return row | changed


def write_run(workdir, steps=6, config=None, finished=True):
    """Fills workdir with a run that was evaluated before its first and after its last step."""
    with MetricsWriter(workdir) as metrics, RolloutWriter(workdir) as rollouts:
        metrics.write(0, "eval", eval_row(0.25))
        for step in range(1, steps + 1):
            metrics.write(step, "train", train_row(step))
            for i in range(3):
                responses = [
                    response(f"\\boxed{{{i + step}}}", 1.0),
                    response("\\boxed{0}", 0.0, reason="not equal"),
                ]
                rollouts.write(
                    step,
                    question_id=f"q{i}",
                    problem=f"What is {i} + {step}?",
                    golds=[str(i + step)],
                    level="easy",
                    responses=responses,
                )
        metrics.write(steps, "eval", eval_row(0.75))
    config = BASE | {"steps": steps} if config is None else config
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "config_base.json").write_text(json.dumps(BASE))
    if finished:
        (workdir / "summary.json").write_text(json.dumps({"steps": steps}))
    return workdir


@pytest.fixture
def make_run(tmp_path):
    """make_run(name, ...) -> workdir of that name; the rest as of write_run."""
    return lambda name="demo", **arguments: write_run(tmp_path / name, **arguments)


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The workdir of a finished run, not to be changed; its page is rendered."""
    workdir = write_run(tmp_path_factory.mktemp("runs") / "demo")
    write_report(workdir)
    return workdir
