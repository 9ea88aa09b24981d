"""The folder of a run: its configuration, records, summary and report.

config.json, config_base.json   the configuration, and the file's values before overrides
data.json, success.json         fingerprints of the questions; p(q) of them, where it was given
metrics.jsonl, tensorboard/     a row per step and per evaluation
rollouts.jsonl                  responses with their rewards, of every n-th step
rollouts/                       whole steps, tokens and all, where they are wanted
samples/                        likewise, those that `disco_jax.sample` left
checkpoints/                    what a restart continues from
evaluations/                    every response of every evaluation, and their results
policy/, policy_best/           the trained policy, and the one that evaluated best, in Hugging
                                Face layout
summary.json, curves.png, report.html   written at the end
"""

import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from disco_jax import answers, processes, replay, settings
from disco_jax.answers import Answers
from disco_jax.command import Command, UserError
from disco_jax.data.sets import QuestionSet
from disco_jax.eval import responses
from disco_jax.eval.evaluate import best_step
from disco_jax.folder import lock, read_json, write_json
from disco_jax.report import html, plots, run, tables
from disco_jax.report.compilations import Compilations
from disco_jax.report.progress import Progress
from disco_jax.report.writers import METRICS, MetricsWriter, RolloutWriter, read_metrics
from disco_jax.rollout import saved

SETTLED = 2  # steps after which nothing may be compiled any more
BEST, POLICY = "policy_best", "policy"
CHECKPOINTS, EVALUATIONS = "checkpoints", "evaluations"
STEP = "step-"  # how the names of a run's own evaluations begin, a number follows
# config.eval.select: the metric that picks the best policy, and what to call the choice.
SELECTORS = {
    "heldout": ("eval/pass1", "validation set (data.heldout)"),
    "benchmarks": ("eval/benchmarks", "test sets, as the paper did: no score of unseen questions"),
}


class Workdir:
    """Writes what a run leaves behind; rows are on file once, however often it is restarted."""

    def __init__(
        self,
        command: Command,
        train_set: QuestionSet,
        heldout: Mapping[str, QuestionSet],
        success: Mapping[str, float],
    ):
        """
        Args:
          heldout: what the run is evaluated on, by name.
          success: p(q) of training questions by id, from `success_rates`.

        Raises:
          UserError: the folder holds another run or one of other questions, or it is in use or
            cannot be written.
        """
        self.path, self.train_set, self._success = command.workdir, train_set, success
        self.config = json.loads(command.config.to_json_best_effort())
        self._base = json.loads(command.base.to_json_best_effort())
        sets = {"train": train_set, **heldout}
        self._data = {name: some.fingerprint() for name, some in sets.items()}
        self._compilations = Compilations()
        self._settled_at: int | None = None
        self._evaluated = False
        self._steps_here = 0
        self._off_policy = False  # once a replayed step was
        self._alarmed = False  # once sampler and trainer differed much
        self._lock = lock(self.path, "another process trains or samples there")
        self.new = not (self.path / "config.json").is_file()
        try:
            self._refuse_changes()
        except UserError:
            self._lock.close()
            raise

    def overview(self) -> str:
        """The configuration, as far as it differs from the file's values."""
        config, base = run.flatten(self.config), run.flatten(self._base)
        return tables.configuration(config, base, tables.Style.of(sys.stderr))

    def _refuse_changes(self) -> None:
        old = read_json(self.path / "config.json")
        changed = settings.changes(run.flatten(old), run.flatten(self.config)) if old else []
        if changed:
            raise UserError(
                f"--workdir={self.path} holds a run with another configuration: "
                + "; ".join(changed)
                + ". Use another --workdir, or the old values"
            )
        kept = read_json(self.path / "data.json")
        both = kept.keys() & self._data.keys()  # `sample` knows the training set alone
        old, new = (run.flatten({k: data[k] for k in both}) for data in (kept, self._data))
        if old != new:
            raise UserError(
                f"--workdir={self.path} holds a run on other data: "
                + "; ".join(f"{k}: {old.get(k)} -> {v}" for k, v in new.items() if old.get(k) != v)
                + ". Restore the files (or the tokenizer, for prompts), or use another --workdir"
            )

    def open(self, step: int, progress: Progress) -> None:
        """Opens the records, without what comes after `step` (it will be made again)."""
        self.progress = progress
        self.keep()
        for folder in (self.path / EVALUATIONS).glob(STEP + "*"):
            number = folder.name.removeprefix(STEP)  # of this run's own, no others are touched
            if number.isdecimal() and int(number) > step:
                shutil.rmtree(folder)
        self._metrics = MetricsWriter(self.path, resume_step=step)
        self._rollouts = RolloutWriter(self.path, resume_step=step)
        self._scores = {}
        for row in read_metrics(self.path):
            if row.get("kind") == "eval":
                self._scores[row["step"]] = self._score(row)

    def _score(self, row: Mapping[str, Any]) -> float:
        key = self._selector[0]
        if key not in row:
            raise UserError(
                f"{self.path / METRICS}: the evaluation of step {row['step']} lacks {key};"
                " remove that line"
            )
        return row[key]

    def keep(self) -> None:
        """Writes what the run must not change when it goes on, the configuration last."""
        if self._success:
            write_json(self.path / "success.json", self._success)
        write_json(self.path / "data.json", self._data)
        write_json(self.path / "config_base.json", self._base)
        write_json(self.path / "config.json", self.config)

    @property
    def _selector(self) -> tuple[str, str]:
        return SELECTORS[self.config["eval"]["select"]]

    def evaluation(
        self,
        step: int,
        evaluate: Callable[[pathlib.Path, Callable[[str], None]], dict[str, Any]],
        export: Callable[[pathlib.Path], None],
    ) -> None:
        """Evaluates and records, unless the row is there already.

        Args:
          evaluate: given a folder for the responses and where to report, returns a row.
          export: writes the policy to a folder; called where it is the best one so far.
        """
        if processes.from_leader(self._metrics.has(step, "eval")):
            return
        with self.progress.phase(f"evaluating after step {step}"):
            row = evaluate(self.path / EVALUATIONS / f"{STEP}{step}", self.progress.say)
        self._scores[step] = row[self._selector[0]]
        # Before the row: a restart that lacks it comes here again.
        if processes.from_leader(best_step(self._scores) == step):
            compiled = self._compilations.count
            export(self.path / BEST)
            write_json(self.path / BEST / "selection.json", self._best())
            if self._settled_at is not None:  # slices of the weights, for a file: no part of a step
                self._settled_at += self._compilations.count - compiled
        self._metrics.write(step, "eval", row)
        self.progress.write(step, "eval", row)
        if not self._evaluated:
            self._evaluated, self._settled_at = True, None
        if step == 0:
            style = tables.Style.of(sys.stderr)
            columns = {"held-out questions, starting policy": row["eval/histogram"]}
            self.progress.say(tables.histogram(columns, style))

    def _best(self) -> dict[str, Any]:
        step = best_step(self._scores)
        return {
            "best_step": step,
            "best_pass1": self._scores[step],
            "best_selected_on": self._selector[1],
        }

    def step(self, step: int, row: dict[str, float], rollouts: tuple[np.ndarray, Answers]) -> None:
        """Records a training step, and its responses where they are due."""
        self._metrics.write(step, "train", row)
        self.progress.write(step, "train", row)
        if step == 1 or step % self.config["log"]["rollouts_every"] == 0:
            for question in answers.rows(self.train_set, *rollouts):
                self._rollouts.write(step, **question)
        if self.config["log"]["rollouts_full"]:
            temperature = self.config["rollout"]["temperature"]
            whole = replay.record(step, *rollouts, self.train_set, temperature)
            saved.write(self.path / replay.FOLDER, whole)
        gap, alarm = row.get("kl/floor_abs", 0.0), self.config["log"]["gap_alarm"]
        if gap > alarm and not self._alarmed:
            self._alarmed = True
            self.progress.say(
                f"step {step}: log-probabilities of sampler and trainer differ by {gap:.2g} nats"
                f" per token (kl/floor_abs), above config.log.gap_alarm={alarm:g}: the KL and every"
                " ratio carry this much noise. Try model.dtype='float32', or another attention"
            )
        if row.get("rollout/off_policy") and not self._off_policy:
            self._off_policy = True
            self.progress.say(
                f"step {step}: other weights than this run's sampled the saved rollouts; from here"
                " on it is off-policy, pi_old is the policy that sampled, and kl/sampler says how"
                " far it is"
            )
        self._steps_here += 1
        if self._steps_here >= SETTLED and self._settled_at is None:
            self._settled_at = self._compilations.count

    def sync(self) -> None:
        """Rows are on the disk before the checkpoint that follows them is."""
        self._metrics.sync()
        self._rollouts.sync()

    def close(self) -> None:
        """Ends the records and lets another process have the folder."""
        self._metrics.close()
        self._rollouts.close()
        self.unlock()

    def unlock(self) -> None:
        """Lets another process have the folder; `close` does it, too."""
        self._lock.close()

    def finish(self) -> None:
        """Writes summary.json, curves.png and report.html, prints the final table, and closes."""
        found = run.load(self.path)
        if self._steps_here or found.summary.get("steps") != found.step:
            write_json(self.path / "summary.json", self._summary(found))
        plots.save_curves(self.path)
        page = html.write_report(self.path)
        style = tables.Style.of(sys.stderr)
        self.progress.say("\n" + tables.before_after(found.before, found.after, style))
        best = self._best()
        self.progress.say(
            f"\n{BEST}: step {best['best_step']}, pass@1 {100 * best['best_pass1']:.1f} %,"
            f" selected on the {best['best_selected_on']}"
        )
        self.progress.say(f"report: {page}")
        self.close()

    def _summary(self, found: run.Run) -> dict[str, Any]:
        """What the run amounts to.

        Recompilations are counted in the process that ends the run, from its second step and its
        first evaluation on; None where it did too little to tell.
        """
        before = found.before
        after = found.after or before  # one evaluation alone is on file where lines were lost
        kl = [value for row in found.train if np.isfinite(value := row.get("kl/mean", np.nan))]
        recompiled = None
        if self._settled_at is not None:
            recompiled = self._compilations.count - self._settled_at
        interval = ("eval/pass1_low", "eval/pass1_high")
        return {
            "pass1_before": before["eval/pass1"],
            "pass1_before_interval": [before[key] for key in interval],
            "pass1_after": after["eval/pass1"],
            "pass1_after_interval": [after[key] for key in interval],
            **self._best(),
            "kl_mean": float(np.mean(kl)) if kl else None,
            "delta": found.delta,
            "steps": found.step,
            "wall_s": found.wall_s,
            "recompiles_after_step_2": recompiled,
        }


def finished_step(path: pathlib.Path) -> int:
    """The step that the run in a workdir had come to when it last finished; 0 where it never has.

    Raises:
      UserError: the summary is damaged.
    """
    return read_json(path / "summary.json").get("steps", 0)


def success_rates(command: Command) -> dict[str, float]:
    """p(q) of training questions by id: those that the run started with, which its workdir keeps,
    or else of `config.data.success`; empty where none are named.

    Raises:
      UserError: the file is absent or holds no responses.
    """
    source = command.config.data.success
    if not source:
        return {}
    kept = read_json(command.workdir / "success.json")
    try:
        return kept or responses.success_rates(pathlib.Path(source).expanduser())
    except (OSError, ValueError) as error:
        raise UserError(f"config.data.success={source!r}: {error}") from error
