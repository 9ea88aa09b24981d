"""What prefill and generate hand out: prefixes to insert, and tokens, in JetStream's shape."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from disco_jax.rollout.cache import PromptCache

Array = jax.Array


class Prefix(NamedTuple):
    """Prefilled prompts, and where the responses to them begin.

    `token_N` is the first token to feed: the last prompt token, whose keys are not cached yet, or
    (with `length_N` = 1) the first response token, drawn by prefill.
    """

    cache: PromptCache
    row_N: np.ndarray  # int32, row of `cache`
    cached_N: np.ndarray  # int32, cached tokens of that prompt
    token_N: Array  # int32
    length_N: np.ndarray  # int32, 0 or 1
    key_N: Array | None  # of the responses, where prefill drew their first tokens


class SlotData(NamedTuple):
    """What `ResultTokens` says about some slots, one row each."""

    tokens: Array
    valid: Array
    lengths: Array
    log_prob: Array


@dataclasses.dataclass(frozen=True)
class ResultTokens:
    """One new token per slot in one int32 array, for one copy to the host.

    Attributes:
      data: [slots, 3]: token, whether it is a token (0 where the slot was done), and the response
        tokens of the slot so far.
      tokens_idx, valid_idx, length_idx: the column ranges of the three.
      samples_per_slot: 1.
      log_prob: float32 [slots, 1], of the distribution that the token was drawn from.
    """

    data: Array
    log_prob: Array
    tokens_idx: tuple[int, int] = (0, 1)
    valid_idx: tuple[int, int] = (1, 2)
    length_idx: tuple[int, int] = (2, 3)
    samples_per_slot: int = 1

    def copy_to_host_async(self) -> None:
        for array in (self.data, self.log_prob):
            if isinstance(array, jax.Array):
                array.copy_to_host_async()

    def convert_to_numpy(self) -> "ResultTokens":
        return dataclasses.replace(
            self, data=np.asarray(self.data), log_prob=np.asarray(self.log_prob)
        )

    def get_result_at_slot(self, slot: int) -> SlotData:
        return self.get_result_at_slots((slot,))

    def get_result_at_slots(self, slots: tuple[int, ...]) -> SlotData:
        rows, at = self.data[np.asarray(slots)], np.asarray(slots)
        return SlotData(
            rows[:, slice(*self.tokens_idx)],
            rows[:, slice(*self.valid_idx)],
            rows[:, slice(*self.length_idx)][:, 0],
            self.log_prob[at],
        )
