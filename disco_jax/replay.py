"""Saved rollouts in a run: each step's kept (`log.rollouts_full`), or trained on in place of
sampling (`rollout.replay`).

A replayed step is on-policy where the run has the very weights that sampled (they are named in the
file), as when the same configuration is run again: then its update is that of the run that saved,
bit for bit. Where the weights differ, say under another objective or learning rate, pi_old is the
policy that sampled, and its log-probabilities those saved: the sampler's own, which differ from the
trainer's for the same weights by `kl/floor_abs` (see there).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from disco_jax.answers import Answers
from disco_jax.command import UserError
from disco_jax.data.sets import QuestionSet
from disco_jax.reward import Verdict
from disco_jax.rollout import saved
from disco_jax.rollout.saved import Saved
from disco_jax.setup import Model

FOLDER, SAMPLES = "rollouts", "samples"  # in a workdir: of its run, of `disco_jax.sample`


def record(step: int, index_Q: np.ndarray, found: Answers, train_set: QuestionSet, temperature):
    """What is written of a step.

    Args:
      step: counts from 1.
      temperature: of the sampler.
    """
    return Saved(
        step=step,
        policy=found.policy,
        temperature=temperature,
        question_ids=[train_set.questions[i].id for i in index_Q],
        rollouts=found.rollouts,
        reward_QN=found.reward_QN,
        texts=found.texts,
        reasons=[[verdict.reason for verdict in row] for row in found.verdicts],
    )


def spans(steps: Sequence[int], most: int = 8) -> str:
    """Ascending steps in few words: `step 7`, `steps 2-5, 9`; at most so many spans."""
    found: list[list[int]] = []
    for step in steps:
        if found and found[-1][-1] == step - 1:
            found[-1][1:] = [step]
        else:
            found.append([step])
    texts = ["-".join(map(str, span)) for span in found[:most]]
    more = [f"and {len(steps)} in all"] if len(found) > most else []
    return f"step{'s' if len(steps) > 1 else ''} " + ", ".join(texts + more)


class Replay:
    """Gives the saved rollouts of a step in place of new ones."""

    def __init__(self, config: Any, model: Model, train_set: QuestionSet):
        """
        Raises:
          UserError: one of `config.steps` was not saved, or the first or the last of them cannot be
            used. Those between are read when their turn comes: reading all would take long.
        """
        self._config, self._model = config, model
        self._index = {question.id: i for i, question in enumerate(train_set.questions)}
        folder = config.rollout.replay
        steps = range(1, config.steps + 1)
        absent = [step for step in steps if not saved.path(folder, step).is_file()]
        if absent:
            raise UserError(
                f"config.rollout.replay={folder!r} lacks {spans(absent)} of"
                f" config.steps={config.steps} (step 1 is a file {saved.path('', 1)}). Sample them"
                " with disco_jax.sample, or train fewer steps"
            )
        for step in sorted({1, config.steps}):
            self(step)

    def __call__(self, step: int) -> tuple[np.ndarray, Answers]:
        """The step's question indices and graded responses.

        Args:
          step: counts from 1.

        Raises:
          UserError: nothing was saved of the step, or what does not fit the configuration.
        """
        config = self._config
        try:
            found = saved.read(
                config.rollout.replay,
                step,
                prompt_tokens=config.data.prompt_tokens,
                max_tokens=config.rollout.max_tokens,
                pad_id=self._model.tokenizer.pad_id,
            )
        except ValueError as error:
            raise UserError(f"config.rollout.replay: {error}") from error
        self._check(found)
        verdicts = [
            [Verdict(int(r), why, 0.0) for r, why in zip(*row, strict=True)]
            for row in zip(found.reward_QN, found.reasons, strict=True)
        ]
        index_Q = np.array([self._index[name] for name in found.question_ids])
        answers = Answers(found.rollouts, found.texts, verdicts, found.reward_QN, found.policy)
        return index_Q, answers

    def _check(self, found: Saved) -> None:
        config = self._config
        where = f"{saved.path(config.rollout.replay, found.step)} (config.rollout.replay)"
        Q, N = found.reward_QN.shape
        pairs = {
            "questions": (Q, config.questions),
            "responses": (N, config.responses),
            "rollout.temperature": (found.temperature, config.rollout.temperature),
        }
        for key, (there, here) in pairs.items():
            if there != here:
                raise UserError(f"{where} has {key}={there!r}, the configuration {here!r}")
        unknown = [name for name in found.question_ids if name not in self._index]
        if unknown:
            raise UserError(f"{where}: question {unknown[0]!r} is not in config.data.train")
        rollouts, vocab = found.rollouts, self._model.dims.vocab
        for ids in (rollouts.prompt_QP, rollouts.tokens_QNT):
            if ids.min() < 0 or ids.max() >= vocab:
                raise UserError(f"{where}: token {ids.max()} where the model has {vocab}")
