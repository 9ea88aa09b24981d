"""Algorithm 1: trains a policy.

    python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/arithmetic

The same command on the same workdir continues an interrupted run, bit for bit on the same
machine: the state is the parameters, the optimizer's moments and the step, and everything else
is a pure function of (config, seed, step), as long as no answer runs into the grader's deadline.

On several hosts the same command runs on each, with --distributed=auto on TPU pods and under SLURM
(--help says what to give elsewhere), on a workdir that all of them reach.
"""

import functools
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from disco_jax import answers, datasets, processes, replay, samplers, settings, setup, workdir
from disco_jax.answers import Answers
from disco_jax.command import OK, STOPPED, Command, UserError, launch
from disco_jax.data import selection
from disco_jax.eval.evaluate import training_row
from disco_jax.model import weights
from disco_jax.report.counter import Counter
from disco_jax.report.progress import Progress
from disco_jax.reward import guard
from disco_jax.rollout import sampling
from disco_jax.types import Metrics
from disco_jax.update.checkpoint import Checkpoints, fingerprint
from disco_jax.update.optimizer import make_schedule
from disco_jax.update.step import TrainState


class Trainer:
    """The parts of a run, and the lines of Algorithm 1 as methods."""

    def __init__(self, config: Any, progress: Progress, success: Mapping[str, float]):
        """Builds everything; raises UserError before any expensive work where something is off.

        Args:
          success: p(q) of training questions by id, empty where it was not measured.
        """
        settings.check(config)
        self.config, self.progress = config, progress
        self.objective = setup.read_objective(config)
        self.mesh = setup.make_mesh(config)
        self.model = setup.find_model(config)
        self.grader = setup.make_grader(config)
        tokenizer = self.model.tokenizer
        self.train_set = datasets.train_questions(config, tokenizer, progress, success)
        self.heldout = datasets.heldout_questions(config, tokenizer, progress)
        progress.say(datasets.first_prompt(self.train_set, tokenizer))
        self.order = datasets.make_order(config, self.train_set, success)
        if config.questions > len(self.train_set):
            raise UserError(
                f"config.questions={config.questions} exceed the {len(self.train_set)} questions"
                f" of config.data.train={config.data.train!r}"
            )
        self.replay = None
        if config.rollout.replay:
            self.replay = replay.Replay(config, self.model, self.train_set)
        self.sample = samplers.make_sampler(config)
        self.engine = samplers.make_engine(
            config, self.model, self.mesh, config.rollout, training=True
        )
        self.copy = processes.Copying(self.engine, self.mesh)
        self.evaluator = samplers.make_evaluator(
            config, self.model, self.mesh, self.grader, training=True
        )
        self.updater = setup.make_updater(config, self.model, self.objective, self.mesh)

    def start(self) -> TrainState:
        """The starting policy, not yet trained."""
        return self.updater.init(setup.placed_weights(self.model, self.mesh, self.progress))

    def rollout(self, state: TrainState, step: int) -> tuple[np.ndarray, Answers, dict[str, float]]:
        """Lines 4 to 6: the step's questions, and pi_old's graded responses to them.

        With refills (dynamic sampling), further questions are asked while too few have both right
        and wrong responses, and the batch is chosen among all of them.

        Returns the questions' indices, the answers, and metrics of the choice.
        """
        config, Q = self.config, self.config.questions
        sequence = self.order(len(self.train_set), Q, config.seed, step)
        params = self._policy(state)
        asked, parts = 0, []
        for _ in range(1 + config.rollout.refills):
            index_Q = sequence[asked : asked + Q]
            if not len(index_Q):
                break
            key_QN = sampling.response_keys(config.seed, "train", step, index_Q, config.responses)
            parts.append(self._answer(params, index_Q, key_QN))
            asked += len(index_Q)
            informative = selection.informative(np.concatenate([p.reward_QN for p in parts]))
            if informative.sum() >= Q:
                break
        row = {"rollout/questions": asked, "rollout/informative": float(informative.mean())}
        chosen_Q = selection.choose(informative, Q)
        return sequence[chosen_Q], answers.join(parts, chosen_Q), row

    def _policy(self, state: TrainState) -> Any:
        """The sampler's copy of the parameters, on this process's devices."""
        return processes.own_arrays(self.copy(self.updater.merged(state.params)), self.engine.mesh)

    def evaluate(
        self, state: TrainState, step: int, folder: pathlib.Path, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """A row of metrics of the held-out sets; the same random numbers every time.

        All processes take part; those but the first get an empty row.

        Args:
          folder: for the responses, a file a set; what it holds already is not sampled again.
          say: is told now and then how far a long evaluation is.
        """
        load = functools.cache(lambda: self._policy(state))
        found = {
            name: self.evaluator(
                load,
                some,
                f"step {step}",
                folder / f"{name}.jsonl",
                Counter(name, say=say, every_s=30.0),
            )
            for name, some in self.heldout.items()
        }
        return training_row(found.pop("heldout"), found) if processes.leader() else {}

    def export(self, state: TrainState, folder: pathlib.Path) -> None:
        """Writes the policy in Hugging Face layout, its tokenizer beside it."""
        params = self.updater.merged(state.params)
        weights.save(folder, self.model.dims, params, tokenizer_from=self.model.folder)

    def _learning_rate(self, step: int) -> float:
        """The rate of a step's last update."""
        optimizer = self.config.optimizer
        rate = make_schedule(optimizer.learning_rate, optimizer.warmup_steps)
        return float(rate((step + 1) * self.config.minibatches - 1))

    def _answer(self, params, index_Q: np.ndarray, key_QN: jax.Array) -> Answers:
        mine = processes.share(len(index_Q))
        found = answers.answer(
            self.sample,
            self.engine,
            params,
            self.train_set,
            index_Q[mine],
            key_QN[mine],
            self.model.tokenizer,
            self.grader,
        )
        return answers.gather(found)

    def train_step(self, state: TrainState, step: int) -> tuple[TrainState, dict, Any]:
        """One pass through lines 4 to 11. Donates `state`.

        Returns the new state, the row of metrics, and the step's (question indices, answers).
        """
        begin = time.perf_counter()
        policy = fingerprint(state.params)
        if self.replay:
            index_Q, found = self.replay(step + 1)
            choice = {"rollout/off_policy": float(found.policy != policy)}
        else:
            index_Q, found, choice = self.rollout(state, step)
            found = found._replace(policy=policy)
        if step == 0:
            flat = [v for row in found.verdicts for v in row]
            try:
                guard.refuse_all_zero(flat, self.config.reward.policy)
            except ValueError as error:
                raise UserError(str(error)) from error
        sampled = time.perf_counter()
        on_policy = found.policy == policy
        state, metrics = self.updater.step(state, found.rollouts, found.reward_QN, on_policy)
        row = _values(metrics)  # waits for the device
        done = time.perf_counter()
        length_QN = found.rollouts.length_QN
        row |= choice
        row |= {
            "response/length": float(length_QN.mean()),
            "response/truncated": float(1 - found.rollouts.ended_QN.mean()),
            "speed/step_s": done - begin,
            "time/rollout": sampled - begin,
            "time/update": done - sampled,
            "optim/lr": self._learning_rate(step),
        }
        if not self.replay:
            row["speed/tokens_per_s"] = float(length_QN.sum()) / (sampled - begin)
        if self.objective.delta is not None:
            row["kl/delta"] = self.objective.delta
        return state, row, (index_Q, found)


def _values(metrics: Metrics) -> dict[str, float]:
    return {name: mean.value for name, mean in jax.device_get(metrics).items()}


def train(command: Command) -> int:
    """Runs or continues the run of a workdir; returns the exit code."""
    config = command.config
    processes.start(command.options[processes.OPTION.name])
    stop, quiet = processes.StopSignal(), not processes.leader()
    starting = Progress(config.steps, quiet=quiet)
    success = workdir.success_rates(command)
    trainer = Trainer(config, starting, success)
    records: workdir.Workdir | processes.Follower = processes.Follower(command.workdir)
    if processes.leader():
        records = workdir.Workdir(command, trainer.train_set, trainer.heldout, success)
    starting.say(records.overview())
    folder, keep = command.workdir / workdir.CHECKPOINTS, config.checkpoint.keep
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
    with Progress(config.steps, start=first, quiet=quiet) as progress:
        records.open(first, progress)
        step, state, finished = _loop(trainer, records, checkpoints, state, first, stop)
        trainer.grader.close()
        if not finished:
            progress.say(f"stopped after step {step}, saved; the same command continues the run")
            return STOPPED
        trainer.export(state, command.workdir / workdir.POLICY)
    records.finish()
    return OK


def _loop(
    trainer: Trainer,
    records: workdir.Workdir | processes.Follower,
    checkpoints: Checkpoints,
    state: TrainState,
    first: int,
    stop: processes.StopSignal,
) -> tuple[int, TrainState, bool]:
    """Steps until the last one and its evaluation, or until a signal.

    Returns the steps done, all of them saved, the state, and whether the run is finished.
    """
    config = trainer.config
    saved, finished = first, False
    for step in range(first, config.steps + 1):
        if stop.requested():
            break
        if step in (0, config.steps) or step % config.eval.every == 0:
            records.evaluation(
                step,
                functools.partial(trainer.evaluate, state, step),
                functools.partial(trainer.export, state),
            )
        finished = step == config.steps
        if finished or stop.requested():
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


if __name__ == "__main__":
    launch(train, options=[processes.OPTION])
