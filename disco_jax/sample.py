"""Lines 4 to 6 of Algorithm 1 alone: samples, grades and saves, and trains nothing.

    python -m disco_jax.sample --config=configs/arithmetic.py --workdir=runs/samples \\
        --config.steps=4 --config.responses=16

Each of the `steps` is sampled with the policy `config.model.path` and written to
WORKDIR/samples/STEP.jsonl.gz: tokens, log-probabilities, texts, rewards (`rollout/saved.py`). The
same command goes on with the steps that are not there yet. `config.rollout.replay` trains on them.
"""

import contextlib
import json
from typing import Any

import numpy as np

from disco_jax import answers, datasets, replay, samplers, settings, setup, workdir
from disco_jax.command import OK, Command, UserError, launch
from disco_jax.report.progress import Progress
from disco_jax.rollout import sampling, saved
from disco_jax.update.checkpoint import fingerprint


def main(command: Command) -> int:
    """Samples the steps that are not saved yet; returns the exit code."""
    config = command.config
    settings.check(config, train=False)
    progress = Progress(config.steps)
    success = workdir.success_rates(command)
    mesh, model = setup.make_mesh(config), setup.find_model(config)
    train_set = datasets.train_questions(config, model.tokenizer, progress, success)
    order = datasets.make_order(config, train_set, success)
    if config.questions > len(train_set):
        raise UserError(
            f"config.questions={config.questions} exceed the {len(train_set)} questions of"
            f" config.data.train={config.data.train!r}"
        )
    sample = samplers.make_sampler(config)
    engine = samplers.make_engine(config, model, mesh, config.rollout)
    with contextlib.ExitStack() as stack:
        records = workdir.Workdir(command, train_set, {}, success)
        stack.callback(records.unlock)
        folder = command.workdir / replay.SAMPLES
        missing = [n for n in range(1, config.steps + 1) if not saved.path(folder, n).is_file()]
        progress.say(f"{config.steps - len(missing)} of {config.steps} steps are saved already")
        if not missing:
            return OK
        if records.new:  # else what is there is a run's, which agrees with it
            records.keep()
        with progress.phase("loading the policy"):
            placed = setup.placed_weights(model, mesh)
            policy, params = fingerprint(placed), engine.load_params(placed)
            del placed
        grader = stack.enter_context(setup.make_grader(config))
        for number in missing:
            index_Q = order(len(train_set), config.questions, config.seed, number - 1)
            index_Q = index_Q[: config.questions]
            key_QN = sampling.response_keys(
                config.seed, "train", number - 1, index_Q, config.responses
            )
            found = answers.answer(
                sample, engine, params, train_set, index_Q, key_QN, model.tokenizer, grader
            )._replace(policy=policy)
            temperature = config.rollout.temperature
            saved.write(folder, replay.record(number, index_Q, found, train_set, temperature))
            print(json.dumps(_row(number, found)), flush=True)
    return OK


def _row(step: int, found: answers.Answers) -> dict[str, Any]:
    solved_Q = found.reward_QN.mean(1)
    return {
        "step": step,
        "reward": float(solved_Q.mean()),
        "informative": float(np.mean((solved_Q > 0) & (solved_Q < 1))),
        "length": float(found.rollouts.length_QN.mean()),
        "truncated": float(1 - found.rollouts.ended_QN.mean()),
    }


if __name__ == "__main__":
    launch(main)
