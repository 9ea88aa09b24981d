"""A question set made ready for the sampler: prompts tokenized and padded once for a whole run."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence

import numpy as np

from disco_jax.data.prompts import pad_prompts
from disco_jax.types import Question


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions and their prompts, left-padded to one width."""

    questions: list[Question]
    prompt_QP: np.ndarray  # int32
    prompt_length_Q: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.questions)

    def prompt(self, index: int) -> list[int]:
        """The tokens of one prompt, without padding."""
        return self.prompt_QP[index, -self.prompt_length_Q[index] :].tolist()

    def fingerprint(self) -> dict[str, int | str]:
        """What a run depends on: the questions with their golds and order, and the prompts."""
        rows = json.dumps([(q.id, q.problem, q.golds) for q in self.questions])
        prompts = hashlib.sha256(np.ascontiguousarray(self.prompt_length_Q))
        prompts.update(np.ascontiguousarray(self.prompt_QP))
        return {
            "number of questions": len(self),
            "questions": hashlib.sha256(rows.encode()).hexdigest()[:16],
            "prompts": prompts.hexdigest()[:16],
        }


def prepare(
    questions: Sequence[Question], encode: Callable[[str], Sequence[int]], width: int, pad_id: int
) -> QuestionSet:
    """Tokenizes and pads prompts.

    Args:
      encode: from a problem to its prompt's tokens, suffix and template included.
      width: P.

    Raises:
      ValueError: no questions, or a prompt of more than `width` tokens (`filters.too_long`).
    """
    if not questions:
        raise ValueError("no question is left")
    prompt_QP, length_Q = pad_prompts([encode(q.problem) for q in questions], width, pad_id)
    return QuestionSet(list(questions), prompt_QP, length_Q)
