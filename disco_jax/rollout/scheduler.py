"""Grouped rollouts over slots: each prompt is prefilled once, its N responses take free slots.

The host looks at the slots once per dispatch. Finished responses free their slots, which are
refilled one by one while anything waits; after that the batch shrinks to the slots still live. One
replica of slots stops as soon as the host has something to do. Several, which cannot know of one
another, make the same number of steps, estimated from how fast responses ended of late: one that
stopped early would wait for the slowest. The next dispatch is sent off before finished responses
are handed on, so that grading overlaps decoding.

What is exact: a response's tokens are drawn with numbers that depend only on its own key and the
token's position, from logits that depend only on the weights and its own tokens. Logits computed
in batches of other sizes, or at other columns of the cache, may differ in the last bits of a float
(sums run in another order), and so may log-probabilities; a token then differs only where a random
number falls within that distance of the edge between two tokens, about once in 10^6 float32 tokens.
"""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable

import jax
import numpy as np

from disco_jax.rollout.cache import round_up, widths
from disco_jax.rollout.engine import Engine
from disco_jax.rollout.results import Prefix
from disco_jax.types import Rollouts

# (question row, sample, response tokens): called once per response, when it is complete.
OnFinish = Callable[[int, int, np.ndarray], None]
# response tokens -> how many of them to keep if the response is to end there, else None. Asked
# whenever tokens were added; it must name the shortest such beginning, so that the answer does
# not depend on how many came at once.
Stop = Callable[[np.ndarray], int | None]
REFILL_SHARE = 16  # waiting responses come in when this fraction (1/16) of the slots is free
# Over several replicas: the first dispatch has 1/4 of the steps, none has fewer than 1/8.
FIRST_SHARE, LEAST_SHARE = 4, 8


@dataclasses.dataclass
class Stats:
    """What a call to `sample` did; calls with the same record add up.

    Only where it is asked for does the host wait for the end of a prefill, to time it.
    """

    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompts: int = 0  # prefilled
    tokens: int = 0  # response tokens returned
    slot_steps: int = 0  # slots decoded, live or not, over all steps
    full_steps: int = 0  # engine's slots x steps: what decoding without compaction would take
    dispatches: int = 0  # host waits for the device
    slides: int = 0
    compactions: int = 0

    @property
    def wasted(self) -> float:
        """The share of decoded slot-steps that made no token of a response."""
        return 1 - self.tokens / self.slot_steps if self.slot_steps else 0.0

    @property
    def occupancy(self) -> float:
        """Response tokens per slot of the engine and step."""
        return self.tokens / self.full_steps if self.full_steps else 0.0


def sample(
    engine: Engine,
    params,
    prompt_QP: np.ndarray,
    prompt_length_Q: np.ndarray,
    key_QN: jax.Array,
    on_finish: OnFinish | None = None,
    limit_QN: np.ndarray | None = None,
    stop: Stop | None = None,
    aborted: Callable[[], bool] | None = None,
    stats: Stats | None = None,
) -> Rollouts:
    """Samples N responses to each of Q questions.

    Args:
      engine: compiled programs.
      params: from `engine.load_params`.
      prompt_QP: int32, left-padded to the engine's prompt width.
      prompt_length_Q: int32, at least 1.
      key_QN: one key per response (`sampling.response_keys`).
      on_finish: receives each response when it is complete.
      limit_QN: token limits of single responses, 1 to the engine's `max_tokens` (the default).
      stop: ends responses on what they say, such as a stop string; they count as ended.
      aborted: asked after every dispatch; once true, what there is is returned (responses may then
        be unended, or empty) and nothing more is handed on.
      stats: is added to.

    Raises:
      ValueError: prompts of another width than the engine's, an empty prompt, or a limit out of
        range.
    """
    config = engine.config
    Q, N = key_QN.shape
    if prompt_QP.shape != (Q, config.prompt_tokens):
        raise ValueError(
            f"prompts of shape {prompt_QP.shape}; the engine takes {(Q, config.prompt_tokens)}"
        )
    if np.min(prompt_length_Q) < 1:
        raise ValueError(f"question {int(np.argmin(prompt_length_Q))} has an empty prompt")
    if limit_QN is None:
        limit_QN = np.full((Q, N), config.max_tokens)
    if np.min(limit_QN) < 1 or np.max(limit_QN) > config.max_tokens:
        raise ValueError(
            f"limits of {np.min(limit_QN)} to {np.max(limit_QN)} tokens: 1 to {config.max_tokens}"
        )
    out = Rollouts(
        prompt_QP=np.asarray(prompt_QP, np.int32),
        prompt_length_Q=np.asarray(prompt_length_Q, np.int32),
        tokens_QNT=np.full((Q, N, config.max_tokens), config.pad_id, np.int32),
        length_QN=np.zeros((Q, N), np.int32),
        ended_QN=np.zeros((Q, N), bool),
        logp_QNT=np.zeros((Q, N, config.max_tokens), np.float32),
    )
    run = _Run(engine, params, out, key_QN, limit_QN, stats)
    finished: list[int] = []
    while run.refill():
        run.shrink()
        block = run.dispatch()
        run.hand_on(finished, on_finish)
        finished = run.collect(jax.device_get(block), stop)
        if aborted is not None and aborted():
            return out
    run.hand_on(finished, on_finish)
    return out


class _Run:
    """The slots of one call, as the host sees them."""

    def __init__(
        self, engine: Engine, params, out: Rollouts, key_QN, limit_QN, stats: Stats | None
    ):
        self.engine, self.params, self.out = engine, params, out
        self.timed, self.stats = stats is not None, stats or Stats()
        Q, N = out.length_QN.shape
        self.N = N
        self.tokens_RT = out.tokens_QNT.reshape(Q * N, -1)
        self.logp_RT = out.logp_QNT.reshape(Q * N, -1)
        self.length_R, self.ended_R = out.length_QN.reshape(-1), out.ended_QN.reshape(-1)
        self.limit_R = np.asarray(limit_QN).reshape(-1)
        self.key_data = np.asarray(jax.random.key_data(key_QN)).reshape(Q * N, -1)
        self.waiting = deque(range(Q * N))
        # Ends of responses and tokens, each dispatch counting half as much as the one after it.
        self.recent_ends, self.recent_tokens = 0.0, 0.0
        self.prefix: Prefix | None = None
        self.first = -engine.config.prefill_questions  # question in row 0 of the prefix
        S = round_up(Q * N, engine.slot_sizes)
        self.occupant_S = np.full(S, -1)  # response, or -1
        self.fill_X = np.zeros(engine.replicas, np.int32)
        longest = int(out.prompt_length_Q[: engine.config.prefill_questions].max())
        self.state = engine.init_decode_state(round_up(longest, engine.column_sizes), S)

    @property
    def local(self) -> int:
        """Slots of a replica."""
        return len(self.occupant_S) // self.engine.replicas

    def refill(self) -> bool:
        """Gives free slots the waiting responses; whether any slot is live."""
        while self.waiting and (self.occupant_S < 0).any():
            question = self.waiting[0] // self.N
            size = self.engine.config.prefill_questions
            if question >= self.first + size:
                self.first += size
                self._prefill()
            free_I = np.flatnonzero(self.occupant_S < 0)
            # Slot 0 of every replica, then slot 1: few responses are spread over all of them.
            free_I = free_I[np.argsort(free_I % self.local, kind="stable")]
            self._start(free_I, (self.first + size) * self.N)
        return bool((self.occupant_S >= 0).any())

    def _prefill(self) -> None:
        size = self.engine.config.prefill_questions
        rows = slice(self.first, self.first + size)
        lengths = self.out.prompt_length_Q[rows]
        prompts = [
            row[len(row) - n :] for row, n in zip(self.out.prompt_QP[rows], lengths, strict=True)
        ]
        begin = time.perf_counter()
        self.prefix = self.engine.prefill_prompts(self.params, prompts)
        if self.timed:
            jax.block_until_ready(self.prefix.cache)
        self.stats.prefill_s += time.perf_counter() - begin
        self.stats.prompts += len(prompts)

    def _start(self, free_I: np.ndarray, bound: int) -> None:
        """Begins waiting responses below `bound` in free slots."""
        begun = []
        while self.waiting and self.waiting[0] < bound and len(begun) < len(free_I):
            begun.append(self.waiting.popleft())
        response_I, slot_I = np.array(begun), free_I[: len(begun)]
        index_I = response_I // self.N - self.first
        past, _ = widths(self.state.cache)
        if self.prefix.cached_N[index_I].max() > past:
            self._slide(int(self.prefix.cached_N[index_I].max()))
        self.state = self.engine.start(
            self.prefix,
            self.state,
            slot_I,
            index_I,
            self.key_data[response_I],
            self.limit_R[response_I],
        )
        self.occupant_S[slot_I] = response_I

    def shrink(self) -> None:
        """Drops free slots when nothing waits, and makes room in the fresh columns."""
        sizes, X = self.engine.slot_sizes, self.engine.replicas
        live_XS = (self.occupant_S >= 0).reshape(X, -1)
        size = round_up(int(live_XS.sum(1).max()) * X, sizes)
        if not self.waiting and size < len(self.occupant_S):
            # Per replica the live slots first; what fills the rest is done.
            row_XS = np.argsort(~live_XS, axis=1, kind="stable")[:, : size // X]
            self._slide(0, row_XS)
        elif (self.fill_X >= widths(self.state.cache)[1]).any():
            self._slide(0)

    def _slide(self, prompt: int, row_XS: np.ndarray | None = None) -> None:
        """To the width that the longest live context, or a prompt to come, needs."""
        response_S = self.occupant_S[self.occupant_S >= 0]
        context_S = self.out.prompt_length_Q[response_S // self.N] - 1 + self.length_R[response_S]
        past = round_up(max(int(context_S.max(initial=1)), prompt), self.engine.column_sizes)
        row_Y = None if row_XS is None else row_XS.reshape(-1)
        self.state = self.engine.slide(self.state, past, row_Y)
        self.fill_X[:] = 0
        if row_XS is not None:
            self.occupant_S = np.take_along_axis(
                self.occupant_S.reshape(len(row_XS), -1), row_XS, axis=1
            ).reshape(-1)
            self.stats.compactions += 1
        self.stats.slides += 1

    def dispatch(self):
        """Sends off decoding until the host has something to do."""
        X, local = self.engine.replicas, self.local
        steps = self.engine.config.steps_per_dispatch
        if self.waiting:
            enough = max(1, local // REFILL_SHARE)
        else:
            smaller = [s // X for s in self.engine.slot_sizes if s // X < local]
            enough = local - smaller[-1] if smaller else local
        if X > 1:
            steps, enough = self._steps_until(enough), local
        self.begun = time.perf_counter()
        self.state, block = self.engine.generate_many(
            self.params, self.state, np.full(X, steps, np.int32), np.full(X, enough, np.int32)
        )
        return block

    def _steps_until(self, enough: int) -> int:
        """Steps in which about that many slots of the fullest replica will be free."""
        most = self.engine.config.steps_per_dispatch
        if not self.recent_tokens:
            return max(1, most // FIRST_SHARE)
        live = int((self.occupant_S >= 0).reshape(self.engine.replicas, -1).sum(1).max())
        left = self.local - enough
        if not self.recent_ends or not left:
            return most
        steps = math.log(max(live / left, 1)) * self.recent_tokens / self.recent_ends
        return min(max(math.ceil(steps), most // LEAST_SHARE, 1), most)

    def collect(self, block, stop: Stop | None) -> list[int]:
        """Takes over the new tokens; returns the responses that are finished."""
        self.stats.decode_s += time.perf_counter() - self.begun
        self.stats.dispatches += 1
        self.stats.slot_steps += int(block.steps_X.sum()) * self.local
        self.stats.full_steps += int(block.steps_X.max()) * self.engine.config.slots
        self.fill_X = np.array(block.fill_X)
        finished, stopped_S = [], np.zeros(len(self.occupant_S), bool)
        for slot in np.flatnonzero(self.occupant_S >= 0):
            response, count = self.occupant_S[slot], block.count_S[slot]
            begin, end = block.length_S[slot] - count, block.length_S[slot]
            self.tokens_RT[response, begin:end] = block.tokens_SR[slot, :count]
            self.logp_RT[response, begin:end] = block.logp_SR[slot, :count]
            self.length_R[response], self.ended_R[response] = end, block.ended_S[slot]
            done = bool(block.done_S[slot])
            keep = stop(self.tokens_RT[response, :end]) if stop is not None and count else None
            if keep is not None:
                self.tokens_RT[response, keep:end] = self.engine.config.pad_id
                self.logp_RT[response, keep:end] = 0.0
                self.length_R[response], self.ended_R[response] = keep, True
                stopped_S[slot] = not done
                done = True
            if done:
                self.stats.tokens += int(self.length_R[response])
                self.occupant_S[slot] = -1
                finished.append(int(response))
        if stopped_S.any():
            self.state = self.engine.end(self.state, stopped_S)
        self.recent_ends = self.recent_ends / 2 + len(finished)
        self.recent_tokens = self.recent_tokens / 2 + int(block.count_S.sum())
        return finished

    def hand_on(self, finished: list[int], on_finish: OnFinish | None) -> None:
        for response in finished if on_finish is not None else ():
            tokens_T = self.tokens_RT[response, : self.length_R[response]]
            on_finish(*divmod(response, self.N), tokens_T)
