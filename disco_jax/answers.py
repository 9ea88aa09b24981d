"""Responses to questions, graded while others are still decoded.

`answer` makes those of lines 5 and 6 of Algorithm 1, `Evaluator` those of evaluations.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from disco_jax import processes
from disco_jax.data.prompts import Tokenizer
from disco_jax.data.sets import QuestionSet
from disco_jax.eval.evaluate import Evaluation, Finish, Sample, Sampled, evaluate
from disco_jax.reward import Grader, Verdict
from disco_jax.rollout import sampling
from disco_jax.rollout.engine import Engine
from disco_jax.types import Rollouts

Sampler = Callable[..., Rollouts]  # as `rollout.scheduler.sample`


class Answers(NamedTuple):
    """N graded responses to each of Q questions."""

    rollouts: Rollouts
    texts: list[list[str]]
    verdicts: list[list[Verdict]]
    reward_QN: np.ndarray  # float32, 0 or 1
    policy: str = ""  # fingerprint of the weights that sampled


def answer(
    sample: Sampler,
    engine: Engine,
    params,
    question_set: QuestionSet,
    index_Q: np.ndarray,
    key_QN: jax.Array,
    tokenizer: Tokenizer,
    grader: Grader,
) -> Answers:
    """Samples N responses to each question of `index_Q` and grades them.

    Args:
      sample: `scheduler.sample` or its like.
      params: from `engine.load_params`.
      key_QN: one key per response, see `sampling.response_keys`.
    """
    Q, N = key_QN.shape
    if Q == 0:
        return _nothing(engine, N)
    texts: list[list[str]] = [[""] * N for _ in range(Q)]
    pending: list[list] = [[None] * N for _ in range(Q)]
    questions = [question_set.questions[i] for i in index_Q]

    def grade(q: int, n: int, tokens: np.ndarray) -> None:
        texts[q][n] = tokenizer.decode(tokens.tolist())
        pending[q][n] = grader.submit(texts[q][n], questions[q].golds)

    rollouts = sample(
        engine,
        params,
        question_set.prompt_QP[index_Q],
        question_set.prompt_length_Q[index_Q],
        key_QN,
        grade,
    )
    verdicts = [[future.result() for future in row] for row in pending]
    reward_QN = np.array([[v.reward for v in row] for row in verdicts], np.float32)
    return Answers(rollouts, texts, verdicts, reward_QN)


def _nothing(engine: Engine, N: int) -> Answers:
    P, T = engine.config.prompt_tokens, engine.config.max_tokens
    rollouts = Rollouts(
        prompt_QP=np.zeros((0, P), np.int32),
        prompt_length_Q=np.zeros(0, np.int32),
        tokens_QNT=np.zeros((0, N, T), np.int32),
        length_QN=np.zeros((0, N), np.int32),
        ended_QN=np.zeros((0, N), bool),
        logp_QNT=np.zeros((0, N, T), np.float32),
    )
    return Answers(rollouts, [], [], np.zeros((0, N), np.float32))


def gather(mine: Answers) -> Answers:
    """The answers of all processes, in all of them; the processes' shares in their order."""
    verdicts = processes.gather_json([[list(v) for v in row] for row in mine.verdicts])
    return Answers(
        Rollouts(*(processes.gather_rows(x) for x in mine.rollouts)),
        processes.gather_json(mine.texts),
        [[Verdict(*v) for v in row] for row in verdicts],
        processes.gather_rows(mine.reward_QN),
    )


def join(parts: list[Answers], chosen_Q: np.ndarray) -> Answers:
    """The answers of several batches of questions as one, at the places `chosen_Q` of them all."""
    fields = zip(*(part.rollouts for part in parts), strict=True)
    rollouts = Rollouts(*(np.concatenate(arrays)[chosen_Q] for arrays in fields))
    texts = [row for part in parts for row in part.texts]
    verdicts = [row for part in parts for row in part.verdicts]
    reward_QN = np.concatenate([part.reward_QN for part in parts])[chosen_Q]
    return Answers(
        rollouts, [texts[i] for i in chosen_Q], [verdicts[i] for i in chosen_Q], reward_QN
    )


class Evaluator:
    """What evaluations share, in training and on the command line: sampler, grader, settings.

    Args:
      sample: `scheduler.sample` or its like.
      engine: at the evaluation's temperature, top-p and length limit.
      seed: of the run; every evaluation uses the same random numbers.
      samples: k, responses per question.
      policy: the grader's, to be named in the file of responses.
    """

    def __init__(
        self,
        sample: Sampler,
        engine: Engine,
        tokenizer: Tokenizer,
        grader: Grader,
        seed: int,
        samples: int,
        policy: str,
    ):
        self._sample, self._engine = sample, engine
        self._tokenizer, self._grader = tokenizer, grader
        self._seed, self.samples, self._policy = seed, samples, policy

    def load_params(self, params) -> Any:
        """The sampler's copy of a policy's parameters, which are whole in this process."""
        return self._engine.load_params(params)

    def __call__(
        self,
        load: Callable[[], Any],
        question_set: QuestionSet,
        weights: str,
        path: pathlib.Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation | None:
        """Samples what `path` does not hold yet, and returns the evaluation.

        With several processes all of them call this; the first one asks the others for their
        shares, writes the file and has the result, which is None in the others.

        Args:
          load: gives what `load_params` made; called only where responses are missing.
          weights: tells the policy from others, as text.
          path: of the responses, see `eval.responses`.
          progress: receives (responses done, responses in all).

        Raises:
          ValueError: `path` holds responses to other questions, or made in another way.
        """
        if not processes.leader():
            while (asked := processes.from_leader(0)) > 0:
                self._share(load, question_set, processes.rows_from_leader(np.zeros(asked)))
            return None
        config = self._engine.config
        found = evaluate(
            question_set.questions,
            self.samples,
            self._sampler(load, question_set),
            self._grader.submit,
            path,
            {
                "weights": weights,
                "prompts": question_set.fingerprint()["prompts"],
                "seed": self._seed,
                **dataclasses.asdict(config.sampling),
                "max_tokens": config.max_tokens,
                "dtype": str(np.dtype(config.dtype)),
                "policy": self._policy,
            },
            # Slots stand empty while the last responses of a chunk finish: chunks of many slots.
            chunk=max(config.prefill_questions, 16 * config.slots // self.samples),
            progress=progress,
        )
        processes.from_leader(0)  # the others may go on
        return found

    def _sampler(self, load: Callable[[], Any], question_set: QuestionSet) -> Sample:
        def sample(_, indices: Sequence[int], k: int, finish: Finish) -> None:
            processes.from_leader(len(indices))
            processes.rows_from_leader(np.asarray(indices))
            for one in self._share(load, question_set, np.asarray(indices), finish):
                finish(one)

        return sample

    def _share(
        self,
        load: Callable[[], Any],
        question_set: QuestionSet,
        index_Q: np.ndarray,
        finish: Finish | None = None,
    ) -> list[Sampled]:
        """Samples this process's share of the questions; returns what the others sampled.

        Args:
          finish: receives the own responses at once.
        """
        index_Q = index_Q[processes.share(len(index_Q))]
        own: list[Sampled] = []

        def hand_on(q: int, n: int, tokens: np.ndarray) -> None:
            text = self._tokenizer.decode(tokens.tolist())
            ended = int(tokens[-1]) in self._tokenizer.eos_ids
            one = Sampled(int(index_Q[q]), n, text, len(tokens), ended)
            if finish is not None:
                finish(one)
            else:
                own.append(one)

        params = load()  # in all processes, also where there is nothing to do
        if len(index_Q):
            self._sample(
                self._engine,
                params,
                question_set.prompt_QP[index_Q],
                question_set.prompt_length_Q[index_Q],
                sampling.response_keys(self._seed, "eval", 0, index_Q, self.samples),
                hand_on,
            )
        return [Sampled(*one) for one in processes.gather_json([list(one) for one in own])]


def rows(train_set: QuestionSet, index_Q: np.ndarray, found: Answers) -> Iterator[dict[str, Any]]:
    """What a reader of a run is shown of each question: a row that JSON can hold."""
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
