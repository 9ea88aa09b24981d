"""Packing: variable-length sequences into micro-batches of static shape.

A row of L tokens holds several whole (prompt + response) sequences; a micro-batch is B rows. Which
response a token belongs to is an index map, so a micro-batch may split the responses to a
question, and the figures of all micro-batches meet again in one `[Q, N, T]` array.
"""

from typing import NamedTuple

import numpy as np

from disco_jax.types import Array, Mean, Rollouts


class MicroBatch(NamedTuple):
    """B rows of L tokens, int32. Padding is segment 0."""

    tokens_BL: Array
    target_BL: Array  # the token that follows
    position_BL: Array  # within its sequence
    segment_BL: Array  # 1, 2, ... within a row
    index_BL: Array  # flat index into [Q, N, T] of the target, Q*N*T where it is not a response's


def pack(rollouts: Rollouts, row_tokens: int, rows: int) -> list[MicroBatch]:
    """Packs every response with its prompt, longest first, each into the first row with room.

    The last token of a response is only ever a target, so a sequence takes
    prompt + response - 1 tokens of a row.

    Args:
      rollouts: Q questions, N responses each; responses of length 0 (absent) are left out.
      row_tokens: L.
      rows: B; the last micro-batch is filled up with empty rows.

    Raises:
      ValueError: a sequence is longer than a row.
    """
    Q, N, T = rollouts.tokens_QNT.shape
    need_QN = rollouts.prompt_length_Q[:, None] + rollouts.length_QN - 1
    need = np.where(rollouts.length_QN > 0, need_QN, 0).reshape(-1)
    if need.max(initial=0) > row_tokens:
        raise ValueError(
            f"packing.row_tokens={row_tokens} is shorter than a sequence of {need.max()} tokens;"
            " it must be at least data.prompt_tokens + rollout.max_tokens - 1"
        )
    row_of, used = _first_fit(need, row_tokens)
    micros = max(1, -(-len(used) // rows))
    arrays = np.zeros((5, micros * rows, row_tokens), np.int32)
    arrays[4] = Q * N * T
    fill = np.zeros(micros * rows, np.int64)
    segments = np.zeros(micros * rows, np.int32)
    for flat in np.flatnonzero(need):
        q, n = divmod(int(flat), N)
        row, size = row_of[flat], int(need[flat])
        prompt = int(rollouts.prompt_length_Q[q])
        length = int(rollouts.length_QN[q, n])
        sequence = np.concatenate(
            [
                rollouts.prompt_QP[q, rollouts.prompt_QP.shape[1] - prompt :],
                rollouts.tokens_QNT[q, n, :length],
            ]
        )
        segments[row] += 1
        at = slice(fill[row], fill[row] + size)
        arrays[0, row, at] = sequence[:-1]
        arrays[1, row, at] = sequence[1:]
        arrays[2, row, at] = np.arange(size)
        arrays[3, row, at] = segments[row]
        arrays[4, row, fill[row] + prompt - 1 : at.stop] = flat * T + np.arange(length)
        fill[row] = at.stop
    parts = arrays.reshape(5, micros, rows, row_tokens)
    return [MicroBatch(*(parts[a, m] for a in range(5))) for m in range(micros)]


def waste(micros: list[MicroBatch]) -> Mean:
    """The share of padding among all tokens, empty rows of the last micro-batch included."""
    padding = sum(np.count_nonzero(micro.segment_BL == 0) for micro in micros)
    return Mean(np.float32(padding), np.float32(sum(micro.segment_BL.size for micro in micros)))


def _first_fit(need: np.ndarray, row_tokens: int) -> tuple[np.ndarray, list[int]]:
    """First-fit decreasing: the row of each sequence, and the tokens used in every row."""
    row_of = np.full(need.shape, -1)
    used: list[int] = []
    for flat in np.argsort(-need, kind="stable"):
        size = int(need[flat])
        if size == 0:
            break
        row = next((r for r, u in enumerate(used) if u + size <= row_tokens), len(used))
        if row == len(used):
            used.append(0)
        used[row] += size
        row_of[flat] = row
    return row_of, used
