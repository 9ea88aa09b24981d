"""Lines 5 and 6 of Algorithm 1: responses to questions, graded while others are still decoded."""

from typing import NamedTuple

import jax
import numpy as np

from disco_jax.data.prompts import Tokenizer, pad_prompts
from disco_jax.reward import Grader, Verdict
from disco_jax.rollout import scheduler
from disco_jax.rollout.engine import Engine
from disco_jax.types import Question, Rollouts


class QuestionSet(NamedTuple):
    """Questions and their prompts, left-padded once for the whole run."""

    questions: list[Question]
    prompt_QP: np.ndarray
    prompt_length_Q: np.ndarray

    def __len__(self) -> int:
        return len(self.questions)


class Answers(NamedTuple):
    """N graded responses to each of Q questions."""

    rollouts: Rollouts
    texts: list[list[str]]
    verdicts: list[list[Verdict]]
    reward_QN: np.ndarray  # float32, 0 or 1


def prepare(
    questions: list[Question], tokenizer: Tokenizer, suffix: str, prompt_tokens: int
) -> tuple[QuestionSet, int]:
    """Tokenizes the prompts of a data set, and leaves out those that are too long.

    Returns the set and the number of questions left out.

    Raises:
      ValueError: no question is left.
    """
    prompts = [tokenizer.encode_prompt(q.problem, suffix) for q in questions]
    kept = [i for i, prompt in enumerate(prompts) if len(prompt) <= prompt_tokens]
    if not kept:
        shortest = min(map(len, prompts), default=0)
        raise ValueError(
            f"no question fits config.data.prompt_tokens={prompt_tokens}: {len(questions)} were"
            f" read, the shortest prompt has {shortest} tokens"
        )
    prompt_QP, length_Q = pad_prompts([prompts[i] for i in kept], prompt_tokens, tokenizer.pad_id)
    kept_questions = [questions[i] for i in kept]
    return QuestionSet(kept_questions, prompt_QP, length_Q), len(questions) - len(kept)


def answer(
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
      params: from `engine.load_params`.
      key_QN: one key per response, see `sampling.response_keys`.
    """
    Q, N = key_QN.shape
    texts: list[list[str]] = [[""] * N for _ in range(Q)]
    pending: list[list] = [[None] * N for _ in range(Q)]
    questions = [question_set.questions[i] for i in index_Q]

    def grade(q: int, n: int, tokens: np.ndarray) -> None:
        texts[q][n] = tokenizer.decode(tokens.tolist())
        pending[q][n] = grader.submit(texts[q][n], questions[q].golds)

    rollouts = scheduler.sample(
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
