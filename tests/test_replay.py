"""Saved rollouts: kept, replayed to the bit, replayed by another policy, sampled alone."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from configs import arithmetic
from disco_jax import replay, sample, train, workdir
from disco_jax.command import STOPPED, Command, UserError
from disco_jax.report.progress import Progress
from disco_jax.report.run import flatten
from disco_jax.rollout import saved

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 2
OTHER = "arithmetic(split='train', size=16, levels=(2,), digits=1)"  # questions
WIDTHS = {"prompt_tokens": 20, "max_tokens": 24, "pad_id": 0}


def make_config(**change):
    config = arithmetic.get_config()
    config.update_from_flattened_dict(
        {
            "steps": STEPS,
            "questions": 2,
            "responses": 4,
            "minibatches": 2,
            "data.train": "arithmetic(split='train', size=16, levels=(1,), digits=1)",
            "data.heldout": "arithmetic(split='heldout', size=2, levels=(1,), digits=1)",
            "data.prompt_tokens": 20,
            "rollout.max_tokens": 24,
            "rollout.slots": 8,
            "packing.row_tokens": 64,
            "packing.rows": 8,
            **change,
        }
    )
    return config.lock()


@pytest.fixture(scope="module")
def trainer():
    """One for all runs of this file: what it has compiled serves them all."""
    trainer = train.Trainer(make_config(), Progress(STEPS), {})
    yield trainer
    trainer.grader.close()


def run(trainer, state, replayed=None, folder=None):
    """Trains all steps from a state; returns the final one and the rows.

    Args:
      replayed: the folder of saved rollouts to train on; samples where there is none.
      folder: keeps the rollouts.
    """
    config, trainer.replay = trainer.config, None
    if replayed is not None:
        config = make_config(**{"rollout.replay": str(replayed)})
        trainer.replay = replay.Replay(config, trainer.model, trainer.train_set)
    rows = []
    for step in range(STEPS):
        state, row, (index_Q, found) = trainer.train_step(state, step)
        rows.append(row)
        if folder is not None:
            temperature = config.rollout.temperature
            whole = replay.record(step + 1, index_Q, found, trainer.train_set, temperature)
            saved.write(folder, whole)
    return jax.device_get(state), rows


@pytest.fixture(scope="module")
def kept(trainer, tmp_path_factory):
    """(folder of the rollouts, final state, rows) of a run that sampled them."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, *run(trainer, trainer.start(), folder=folder)


def assert_equal_states(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_replayed_run_ends_with_the_same_parameters(trainer, kept):
    folder, state, rows = kept
    found, replayed = run(trainer, trainer.start(), replayed=folder)
    assert_equal_states(found, state)
    for row, expected in zip(replayed, rows, strict=True):
        assert row.pop("rollout/off_policy") == 0
        clocks = ("time/", "speed/", "rollout/")
        same = {k: v for k, v in expected.items() if not k.startswith(clocks)}
        np.testing.assert_equal({k: row[k] for k in same}, same)


def test_where_the_policy_differs_pi_old_is_the_one_that_sampled(trainer, kept):
    folder, *_ = kept
    state = trainer.start()
    other = jax.tree.map(lambda x: 1.02 * x, state.params)
    _, rows = run(trainer, state._replace(params=other), replayed=folder)
    for row in rows:
        assert row["rollout/off_policy"] == 1
        assert "kl/floor" not in row and abs(row["kl/sampler"]) > 1e-4
    assert all("kl/floor" in row and "kl/sampler" not in row for row in kept[2])


def test_off_policy_updates_read_the_samplers_log_probabilities(trainer, kept):
    found = saved.read(kept[0], 1, **WIDTHS)
    rollouts, state = found.rollouts, trainer.start()
    for on_policy in (True, False):
        (first, *_) = trainer.updater.minibatches(
            state.params, rollouts, found.reward_QN, on_policy
        )
        mask_QNT = np.asarray(first.batch.mask_QNT)
        old_QNT = np.asarray(first.batch.logp_old_QNT)[mask_QNT]
        sampled_QNT = rollouts.logp_QNT[: len(mask_QNT)][mask_QNT]
        np.testing.assert_allclose(old_QNT, sampled_QNT, atol=1e-4)
        assert np.array_equal(old_QNT, sampled_QNT) != on_policy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollout.replay": "nowhere"}, "replay='nowhere' lacks steps 1-2 of config.steps=2 "),
        ({"steps": 6}, r"lacks steps 3-6 of config.steps=6 \(step 1 is a file 000001.jsonl.gz\)"),
        ({"rollout.temperature": 0.5}, "has rollout.temperature=1.0, the configuration 0.5"),
        ({"responses": 3}, "has responses=4, the configuration 3"),
        ({"questions": 4}, "has questions=2, the configuration 4"),
        ({"rollout.max_tokens": 4}, "from 1 to 4 fit"),
        (
            {"data.train": "arithmetic(split='train', size=16, levels=(2,), digits=1)"},
            "not in config.data",
        ),
    ],
)
def test_rollouts_that_do_not_fit_are_refused_at_the_start(kept, change, message):
    folder, *_ = kept
    with pytest.raises(UserError, match=message):
        train.Trainer(make_config(**({"rollout.replay": str(folder)} | change)), Progress(1), {})


def test_the_last_step_is_looked_into_at_the_start(kept, tmp_path):
    folder = shutil.copytree(kept[0], tmp_path / "cut")
    last = saved.path(folder, STEPS)
    last.write_bytes(last.read_bytes()[:-9])
    with pytest.raises(UserError, match="000002.jsonl.gz: cannot be read"):
        train.Trainer(make_config(**{"rollout.replay": str(folder)}), Progress(1), {})


def test_absent_steps_are_told_in_few_words():
    assert replay.spans([7]) == "step 7"
    assert replay.spans([2, 3, 4, 9]) == "steps 2-4, 9"
    assert replay.spans(range(1, 99, 2), most=3) == "steps 1, 3, 5, and 49 in all"


def test_sampling_alone_saves_what_a_run_would(kept, tmp_path, capsys):
    """Step 1 of a run samples with the same policy; step 2 no longer does."""
    folder, *_ = kept
    config = make_config()
    command = Command(config, config, tmp_path, {})
    assert sample.main(command) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    there = tmp_path / replay.SAMPLES
    assert saved.path(there, 1).read_bytes() == saved.path(folder, 1).read_bytes()
    both = [saved.read(where, 2, **WIDTHS) for where in (there, folder)]
    assert both[0].question_ids == both[1].question_ids
    assert both[0].policy != both[1].policy

    before = saved.path(there, 2).read_bytes()
    saved.path(there, 2).unlink()
    capsys.readouterr()
    assert sample.main(command) == 0  # goes on where a step is missing
    assert [json.loads(x)["step"] for x in capsys.readouterr().out.splitlines()] == [2]
    assert saved.path(there, 2).read_bytes() == before


@pytest.mark.slow
def test_sampling_is_stopped_by_a_signal_and_goes_on(tmp_path):
    base, config = (flatten(c.to_dict()) for c in (arithmetic.get_config(), make_config()))
    flags = [f"--config.{key}={value}" for key, value in config.items() if value != base[key]]
    command = [sys.executable, "-m", "disco_jax.sample", "--config=configs/arithmetic.py", *flags]
    process = subprocess.Popen(
        [*command, "--config.steps=100000", f"--workdir={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()  # a step is done, the next one is sampled
    process.terminate()
    rows, text = process.communicate(timeout=300)
    assert process.returncode == STOPPED, text
    assert text.splitlines()[-1].startswith("stopped; ") and "Traceback" not in text
    for step in range(1, 2 + len(rows.splitlines())):
        assert saved.read(tmp_path / replay.SAMPLES, step, **WIDTHS).step == step


class Sampling(Exception):
    """In place of responses: what `sample` does before is under test."""


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """sampled(config): what `sample` does in the workdir `tmp_path` until it samples."""

    def answer(*arguments):
        raise Sampling

    def run(config):
        with pytest.raises(Sampling):
            sample.main(Command(config, config, tmp_path, {}))

    monkeypatch.setattr(sample.answers, "answer", answer)
    return run


def test_a_run_and_samples_share_a_workdir(trainer, sampled, tmp_path):
    """Whichever comes first, the records are those of the run, and name all that it reads."""

    def open_run(heldout=trainer.heldout):
        command = Command(trainer.config, trainer.config, tmp_path, {})
        records = workdir.Workdir(command, trainer.train_set, heldout, {})
        records.open(0, Progress(1, quiet=True))
        records.close()

    def kept(name):
        return json.loads((tmp_path / name).read_text())

    sampled(make_config(steps=1))
    assert kept("data.json").keys() == {"train"}
    open_run()
    assert kept("data.json").keys() == {"train", "heldout"} and kept("config.json")["steps"] == 2
    sampled(make_config(steps=1))
    assert kept("data.json").keys() == {"train", "heldout"} and kept("config.json")["steps"] == 2
    with pytest.raises(UserError, match="on other data: heldout.number of questions: 2 -> 16"):
        open_run({"heldout": trainer.train_set})
