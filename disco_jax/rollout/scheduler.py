"""Grouped rollouts over slots: each prompt is prefilled once, its N responses take free slots.

The host looks at the slots once per dispatch: finished responses are taken out and handed on
(so that grading overlaps decoding), and their slots are refilled.
"""

from collections import deque
from collections.abc import Callable

import jax
import numpy as np

from disco_jax.rollout.engine import Engine, Prefix
from disco_jax.types import Rollouts

# (question row, sample, response tokens): called once per response, as it finishes.
OnFinish = Callable[[int, int, np.ndarray], None]


def sample(
    engine: Engine,
    params,
    prompt_QP: np.ndarray,
    prompt_length_Q: np.ndarray,
    key_QN: jax.Array,
    on_finish: OnFinish | None = None,
) -> Rollouts:
    """Samples N responses to each of Q questions.

    Args:
      engine: compiled programs.
      params: from `engine.load_params`.
      prompt_QP: int32, left-padded to the engine's prompt width.
      prompt_length_Q: int32, at least 1.
      key_QN: one key per response (`sampling.response_keys`).
      on_finish: receives each response when it is complete.

    Raises:
      ValueError: prompts of another width than the engine's, or an empty prompt.
    """
    config = engine.config
    Q, N = key_QN.shape
    if prompt_QP.shape != (Q, config.prompt_tokens):
        raise ValueError(
            f"prompts of shape {prompt_QP.shape}; the engine takes {(Q, config.prompt_tokens)}"
        )
    if np.min(prompt_length_Q) < 1:
        raise ValueError(f"question {int(np.argmin(prompt_length_Q))} has an empty prompt")
    out = Rollouts(
        prompt_QP=np.asarray(prompt_QP, np.int32),
        prompt_length_Q=np.asarray(prompt_length_Q, np.int32),
        tokens_QNT=np.full((Q, N, config.max_tokens), config.pad_id, np.int32),
        length_QN=np.zeros((Q, N), np.int32),
        ended_QN=np.zeros((Q, N), bool),
        logp_QNT=np.zeros((Q, N, config.max_tokens), np.float32),
    )
    key_data_QN = np.asarray(jax.random.key_data(key_QN))
    waiting = deque((q, n) for q in range(Q) for n in range(N))
    occupant: list[tuple[int, int] | None] = [None] * config.slots
    state = engine.init_decode_state()
    prefix: Prefix | None = None
    first = -config.prefill_questions  # question in row 0 of the prefix
    while waiting or any(occupant):
        while waiting and not all(occupant):
            if waiting[0][0] >= first + config.prefill_questions:
                first += config.prefill_questions
                prefix = _prefill(engine, params, out, first)
            state = _refill(engine, prefix, first, state, waiting, occupant, key_data_QN)
        state = engine.generate(params, state)
        _collect(state, occupant, out, on_finish)
    return out


def _prefill(engine: Engine, params, out: Rollouts, first: int) -> Prefix:
    size = engine.config.prefill_questions
    prompt_QP = np.full((size, engine.config.prompt_tokens), engine.config.pad_id, np.int32)
    length_Q = np.zeros(size, np.int32)
    rows = out.prompt_QP[first : first + size]
    prompt_QP[: len(rows)] = rows
    length_Q[: len(rows)] = out.prompt_length_Q[first : first + size]
    return engine.prefill(params, prompt_QP, length_Q)


def _refill(engine: Engine, prefix, first: int, state, waiting: deque, occupant: list, key_data):
    """Gives every free slot the next waiting response whose prompt is in the prefix."""
    size = engine.config.prefill_questions
    source_S = np.full(engine.config.slots, -1, np.int32)
    key_data_S = np.zeros((engine.config.slots, key_data.shape[-1]), key_data.dtype)
    for slot, busy in enumerate(occupant):
        if busy is None and waiting and waiting[0][0] < first + size:
            question, sample_index = occupant[slot] = waiting.popleft()
            source_S[slot] = question - first
            key_data_S[slot] = key_data[question, sample_index]
    key_S = jax.random.wrap_key_data(key_data_S)
    return engine.bulk_insert(prefix, state, source_S, key_S)


def _collect(state, occupant: list, out: Rollouts, on_finish: OnFinish | None) -> None:
    """Copies finished responses to the host and frees their slots."""
    done_S, length_S, ended_S = jax.device_get((state.done_S, state.length_S, state.ended_S))
    finished = [slot for slot, busy in enumerate(occupant) if busy is not None and done_S[slot]]
    if not finished:
        return
    tokens_ST, logp_ST = jax.device_get((state.tokens_ST, state.logp_ST))
    for slot in finished:
        q, n = occupant[slot]
        length = length_S[slot]
        out.tokens_QNT[q, n, :length] = tokens_ST[slot, :length]
        out.logp_QNT[q, n, :length] = logp_ST[slot, :length]
        out.length_QN[q, n], out.ended_QN[q, n] = length, ended_S[slot]
        occupant[slot] = None
        if on_finish is not None:
            on_finish(q, n, out.tokens_QNT[q, n, :length])
