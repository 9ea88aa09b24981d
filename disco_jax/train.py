"""Algorithm 1: trains a policy.

    python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/arithmetic

The same command on the same workdir continues an interrupted run, bit for bit on the same
machine: the state is the parameters, the optimizer's moments and the step, and everything else
is a pure function of (config, seed, step), as long as no answer runs into the grader's deadline.
"""

import functools
import signal
import time
from typing import Any

import jax
import numpy as np

from disco_jax import answers, settings, setup, workdir
from disco_jax.answers import Answers, QuestionSet
from disco_jax.command import OK, STOPPED, Command, UserError, launch
from disco_jax.data import order
from disco_jax.eval.pass_at_k import pass_at_1
from disco_jax.model import weights
from disco_jax.report.progress import Progress
from disco_jax.reward import guard
from disco_jax.rollout import sampling
from disco_jax.types import Metrics
from disco_jax.update.checkpoint import Checkpoints
from disco_jax.update.optimizer import make_schedule
from disco_jax.update.step import TrainState


class Trainer:
    """The parts of a run, and the lines of Algorithm 1 as methods."""

    def __init__(self, config: Any, progress: Progress):
        """Builds everything; raises UserError before any expensive work where something is off."""
        settings.check(config)
        self.config, self.progress = config, progress
        self.objective = setup.read_objective(config)
        self.mesh = setup.make_mesh(config)
        self.model = setup.find_model(config)
        self.grader = setup.make_grader(config)
        with progress.phase("reading questions"):
            self.train_set = setup.load_questions(config, "train", self.model.tokenizer, progress)
            self.heldout = setup.load_questions(config, "heldout", self.model.tokenizer, progress)
        if config.questions > len(self.train_set):
            raise UserError(
                f"config.questions={config.questions} exceed the {len(self.train_set)} questions"
                f" of config.data.train={config.data.train!r}"
            )
        rollout, evaluation = config.rollout, config.eval
        self.engine, self.eval_engine = (
            setup.make_engine(config, self.model, self.mesh, temperature=t, top_p=p)
            for t, p in (
                (rollout.temperature, rollout.top_p),
                (evaluation.temperature, evaluation.top_p),
            )
        )
        self.updater = setup.make_updater(config, self.model, self.objective, self.mesh)

    def start(self) -> TrainState:
        """The starting policy, not yet trained."""
        return self.updater.init(setup.load_weights(self.model))

    def rollout(self, state: TrainState, step: int) -> tuple[np.ndarray, Answers]:
        """Lines 4 to 6: the step's questions, and pi_old's graded responses to them."""
        config = self.config
        index_Q = order.batch(len(self.train_set), config.questions, config.seed, step)
        key_QN = sampling.response_keys(config.seed, "train", step, index_Q, config.responses)
        return index_Q, self._answer(self.engine, state, self.train_set, index_Q, key_QN)

    def evaluate(self, state: TrainState) -> dict[str, Any]:
        """Held-out pass@1 with its 95 % interval; the same random numbers every time."""
        samples = self.config.eval.samples
        index_Q = np.arange(len(self.heldout))
        key_QN = sampling.response_keys(self.config.seed, "eval", 0, index_Q, samples)
        found = self._answer(self.eval_engine, state, self.heldout, index_Q, key_QN)
        correct_QK = found.reward_QN > 0
        mean, low, high = pass_at_1(correct_QK)
        row = {
            "eval/pass1": mean,
            "eval/pass1_low": low,
            "eval/pass1_high": high,
            "eval/length": float(found.rollouts.length_QN.mean()),
            "eval/truncated": float(1 - found.rollouts.ended_QN.mean()),
            "eval/histogram": np.bincount(correct_QK.sum(-1), minlength=samples + 1).tolist(),
        }
        levels = np.array([q.level for q in self.heldout.questions])
        for level in sorted(set(levels) - {""}):
            row[f"eval/level/{level}"] = float(correct_QK[levels == level].mean())
        return row

    def _learning_rate(self, step: int) -> float:
        """The rate of a step's last update."""
        optimizer = self.config.optimizer
        rate = make_schedule(optimizer.learning_rate, optimizer.warmup_steps)
        return float(rate((step + 1) * self.config.minibatches - 1))

    def _answer(self, engine, state: TrainState, question_set: QuestionSet, index_Q, key_QN):
        params = engine.load_params(state.params)
        return answers.answer(
            engine, params, question_set, index_Q, key_QN, self.model.tokenizer, self.grader
        )

    def train_step(self, state: TrainState, step: int) -> tuple[TrainState, dict, Any]:
        """One pass through lines 4 to 11. Donates `state`.

        Returns the new state, the row of metrics, and the step's (question indices, answers).
        """
        begin = time.perf_counter()
        index_Q, found = self.rollout(state, step)
        if step == 0:
            flat = [v for row in found.verdicts for v in row]
            try:
                guard.refuse_all_zero(flat, self.config.reward.policy)
            except ValueError as error:
                raise UserError(str(error)) from error
        sampled = time.perf_counter()
        state, metrics = self.updater.step(state, found.rollouts, found.reward_QN)
        row = _values(metrics)  # waits for the device
        done = time.perf_counter()
        length_QN = found.rollouts.length_QN
        row |= {
            "response/length": float(length_QN.mean()),
            "response/truncated": float(1 - found.rollouts.ended_QN.mean()),
            "speed/tokens_per_s": float(length_QN.sum()) / (sampled - begin),
            "speed/step_s": done - begin,
            "time/rollout": sampled - begin,
            "time/update": done - sampled,
            "optim/lr": self._learning_rate(step),
        }
        if self.objective.delta is not None:
            row["kl/delta"] = self.objective.delta
        return state, row, (index_Q, found)


def _values(metrics: Metrics) -> dict[str, float]:
    return {name: mean.value for name, mean in jax.device_get(metrics).items()}


def train(command: Command) -> int:
    """Runs or continues the run of a workdir; returns the exit code."""
    config = command.config
    stop = _StopSignal()
    starting = Progress(config.steps)
    trainer = Trainer(config, starting)
    records = workdir.Workdir(command, trainer.train_set)
    starting.say(records.overview())
    folder, keep = command.workdir / "checkpoints", config.checkpoint.keep
    try:
        checkpoints = Checkpoints(folder, keep=keep, say=starting.say)
        with starting.phase("loading the policy"):
            state = trainer.start()
            found = checkpoints.restore(state)
        if found is None:  # also finds out now whether the disk takes a checkpoint
            checkpoints.save(0, state)
            checkpoints.wait()
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    first, state = found or (0, state)
    if first > config.steps:
        raise UserError(
            f"config.steps={config.steps}: the run in {command.workdir} has done {first} steps;"
            " give at least as many"
        )
    if found:
        starting.say(f"continuing after step {first}")
    with Progress(config.steps, start=first) as progress:
        records.open(first, progress)
        step, state, finished = _loop(trainer, records, checkpoints, state, first, stop)
        trainer.grader.close()
        if not finished:
            progress.say(f"stopped after step {step}, saved; the same command continues the run")
            return STOPPED
        policy = command.workdir / "policy"
        weights.save(policy, trainer.model.dims, state.params, tokenizer_from=trainer.model.folder)
    records.finish()
    return OK


def _loop(
    trainer: Trainer,
    records: workdir.Workdir,
    checkpoints: Checkpoints,
    state: TrainState,
    first: int,
    stop: "_StopSignal",
) -> tuple[int, TrainState, bool]:
    """Steps until the last one and its evaluation, or until a signal.

    Returns the steps done, all of them saved, the state, and whether the run is finished.
    """
    config = trainer.config
    saved, finished = first, False
    for step in range(first, config.steps + 1):
        if stop.requested:
            break
        if step in (0, config.steps) or step % config.eval.every == 0:
            records.evaluation(step, functools.partial(trainer.evaluate, state))
        finished = step == config.steps
        if finished or stop.requested:
            break
        state, row, rollouts = trainer.train_step(state, step)
        records.step(step + 1, row, rollouts)
        if (step + 1) % config.checkpoint.every == 0 or step + 1 == config.steps:
            records.sync()
            checkpoints.save(step + 1, state)
            saved = step + 1
    if step != saved:
        records.sync()
        checkpoints.save(step, state)
    checkpoints.close()
    return step, state, finished


class _StopSignal:
    """SIGTERM and SIGINT: the first lets the step finish and saves, the second ends at once."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.requested = True


if __name__ == "__main__":
    launch(train)
