"""The folder of a run: its configuration, records, summary and report.

config.json, config_base.json   the configuration, and the file's values before overrides
metrics.jsonl, tensorboard/     a row per step and per evaluation
rollouts.jsonl                  responses with their rewards, of every n-th step
checkpoints/                    what a restart continues from
policy/                         the trained policy in Hugging Face layout
summary.json, curves.png, report.html   written at the end
"""

import fcntl
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from disco_jax import settings
from disco_jax.answers import Answers, QuestionSet
from disco_jax.command import Command, UserError
from disco_jax.report import html, plots, run, tables
from disco_jax.report.compilations import Compilations
from disco_jax.report.progress import Progress
from disco_jax.report.writers import MetricsWriter, RolloutWriter

SETTLED = 2  # steps after which nothing may be compiled any more


class Workdir:
    """Writes what a run leaves behind; rows are on file once, however often it is restarted."""

    def __init__(self, command: Command, train_set: QuestionSet):
        """Raises UserError where the folder holds another run or cannot be written."""
        self.path, self.train_set = command.workdir, train_set
        self.config = json.loads(command.config.to_json_best_effort())
        self._base = json.loads(command.base.to_json_best_effort())
        self._compilations = Compilations()
        self._settled_at: int | None = None
        self._evaluated = False
        self._steps_here = 0
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--workdir={self.path}: another process is training there; wait for it, or use"
                " another folder"
            ) from None
        except OSError as error:
            raise UserError(f"--workdir={self.path}: {error}") from error
        self._refuse_changes()

    def overview(self) -> str:
        """The configuration, as far as it differs from the file's values."""
        config, base = run.flatten(self.config), run.flatten(self._base)
        return tables.configuration(config, base, tables.Style.of(sys.stderr))

    def _refuse_changes(self) -> None:
        path = self.path / "config.json"
        if not path.is_file():
            return
        try:
            old = json.loads(path.read_text())
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON ({error}); use another --workdir") from None
        changed = settings.changes(run.flatten(old), run.flatten(self.config))
        if changed:
            raise UserError(
                f"--workdir={self.path} holds a run with another configuration: "
                + "; ".join(changed)
                + ". Use another --workdir, or the old values"
            )

    def open(self, step: int, progress: Progress) -> None:
        """Opens the records, without the rows after `step` (they will be made again)."""
        self.progress = progress
        _write_json(self.path / "config.json", self.config)
        _write_json(self.path / "config_base.json", self._base)
        self._metrics = MetricsWriter(self.path, resume_step=step)
        self._rollouts = RolloutWriter(self.path, resume_step=step)

    def evaluation(self, step: int, evaluate: Callable[[], dict[str, Any]]) -> None:
        """Evaluates and records, unless the row is there already."""
        if not self._metrics.has(step, "eval"):
            with self.progress.phase(f"evaluating after step {step}"):
                row = evaluate()
            self._metrics.write(step, "eval", row)
            self.progress.write(step, "eval", row)
            if not self._evaluated:
                self._evaluated, self._settled_at = True, None
            if step == 0:
                style = tables.Style.of(sys.stderr)
                columns = {"held-out questions, starting policy": row["eval/histogram"]}
                self.progress.say(tables.histogram(columns, style))

    def step(self, step: int, row: dict[str, float], rollouts: tuple[np.ndarray, Answers]) -> None:
        """Records a training step, and its responses where they are due."""
        self._metrics.write(step, "train", row)
        self.progress.write(step, "train", row)
        if step == 1 or step % self.config["log"]["rollouts_every"] == 0:
            for question in _rows(self.train_set, *rollouts):
                self._rollouts.write(step, **question)
        self._steps_here += 1
        if self._steps_here >= SETTLED and self._settled_at is None:
            self._settled_at = self._compilations.count

    def sync(self) -> None:
        """Rows are on the disk before the checkpoint that follows them is."""
        self._metrics.sync()
        self._rollouts.sync()

    def finish(self) -> None:
        """Writes summary.json, curves.png and report.html, and prints the final table."""
        self._metrics.close()
        self._rollouts.close()
        found = run.load(self.path)
        if self._steps_here or not found.summary:
            _write_json(self.path / "summary.json", self._summary(found))
        plots.save_curves(self.path)
        page = html.write_report(self.path)
        style = tables.Style.of(sys.stderr)
        self.progress.say("\n" + tables.before_after(found.before, found.after, style))
        self.progress.say(f"\nreport: {page}")

    def _summary(self, found: run.Run) -> dict[str, Any]:
        """What the run amounts to.

        Recompilations are counted in the process that ends the run, from its second step and its
        first evaluation on; None where it did too little to tell.
        """
        before, after = found.before, found.after
        recompiled = None
        if self._settled_at is not None:
            recompiled = self._compilations.count - self._settled_at
        interval = ("eval/pass1_low", "eval/pass1_high")
        return {
            "pass1_before": before["eval/pass1"],
            "pass1_before_interval": [before[key] for key in interval],
            "pass1_after": after["eval/pass1"],
            "pass1_after_interval": [after[key] for key in interval],
            "kl_mean": float(np.nanmean([row["kl/mean"] for row in found.train])),
            "delta": found.delta,
            "steps": found.step,
            "wall_s": found.wall_s,
            "recompiles_after_step_2": recompiled,
        }


def _rows(train_set: QuestionSet, index_Q: np.ndarray, found: Answers):
    lengths, ended = found.rollouts.length_QN, found.rollouts.ended_QN
    for q, index in enumerate(index_Q):
        question = train_set.questions[index]
        responses = [
            {
                "text": found.texts[q][n],
                "reward": float(verdict.reward),
                "reason": verdict.reason,
                "tokens": int(lengths[q, n]),
                "ended": bool(ended[q, n]),
            }
            for n, verdict in enumerate(found.verdicts[q])
        ]
        yield {
            "question_id": question.id,
            "problem": question.problem,
            "golds": question.golds,
            "level": question.level,
            "responses": responses,
        }


def _write_json(path: pathlib.Path, value: Any) -> None:
    """The file appears whole or not at all."""
    tmp = path.with_name(path.name + ".tmp")
    tmp.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
    os.replace(tmp, path)
