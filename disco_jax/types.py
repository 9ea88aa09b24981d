"""The records that flow through Algorithm 1, and the key of the axis letters.

Array names carry their axes (`logp_QNT`), one capital letter each:

    Q  questions in a minibatch (or in a step)     D  model width
    N  responses per question                      H  query heads
    P  prompt tokens (left-padded)                 K  key/value heads
    T  response tokens (right-padded)              F  feed-forward width
    B  packed rows of a micro-batch                V  vocabulary
    L  tokens of a row                             S  rollout slots

A group (the responses to one question) is an axis, never an id to sort by. Groups of unequal
size and padding are masks: a missing response is a row of `mask_QNT` that is False throughout.
"""

import dataclasses
from typing import Any, NamedTuple

Array = Any  # a jax.Array or a numpy.ndarray: this module imports neither


@dataclasses.dataclass(frozen=True)
class Question:
    """One problem and the answers that are accepted for it.

    Attributes:
      id: unique within its data set; names the question in logs and saved rollouts.
      problem: the text shown to the model, before the chat template.
      golds: acceptable final answers, as text; any of them may match.
      source: the data set it comes from.
      level: difficulty label, as far as the data set has one; empty otherwise.
    """

    id: str
    problem: str
    golds: tuple[str, ...]
    source: str = ""
    level: str = ""


class Rollouts(NamedTuple):
    """N sampled responses to each of Q questions, as host arrays.

    `length_QN` counts response tokens up to and including the first end-of-sequence token;
    positions from there on hold the padding id and are never read.
    """

    prompt_QP: Array  # int32, left-padded
    prompt_length_Q: Array  # int32
    tokens_QNT: Array  # int32
    length_QN: Array  # int32, at least 1
    ended_QN: Array  # bool: stopped by an end-of-sequence token, not by the token limit
    logp_QNT: Array  # float32, the sampler's log-probability at the sampling temperature


class Batch(NamedTuple):
    """What an objective needs to know besides the policy's own log-probabilities.

    All log-probabilities are of the tempered policy: softmax(logits / temperature).
    """

    mask_QNT: Array  # bool, True through the first end-of-sequence token
    reward_QN: Array  # float32; 1 correct, 0 wrong
    logp_old_QNT: Array  # float32, pi_old, no gradient
    logp_ref_QNT: Array | None = None  # float32, frozen reference; only where a part needs it


class Mean(NamedTuple):
    """A metric that merges exactly: means are never averaged, sums and counts are added."""

    sum: Array
    count: Array

    def merge(self, other: "Mean") -> "Mean":
        return Mean(self.sum + other.sum, self.count + other.count)

    @property
    def value(self) -> float:
        """sum / count, nan where nothing was counted."""
        return float(self.sum) / float(self.count) if self.count else float("nan")


Metrics = dict[str, Mean]
