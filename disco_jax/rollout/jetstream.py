"""Our engine in the form that google-jetstream 0.2.2 drives.

JetStream's Driver decides what is prefilled, inserted and decoded when. `Adapter` gives it our
engine, and keeps what it drops on the way: each response's end-of-sequence token and
log-probabilities. `jetstream_driver.py` runs the Driver, `jetstream_server.py` its gRPC server.

Importing this file imports TensorFlow (JetStream's own tokenizers do).
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jetstream.engine import engine_api, tokenizer_api, tokenizer_pb2

from disco_jax.rollout import cache as caches
from disco_jax.rollout.engine import Engine

# The prompt widths that JetStream pads to; it looks the engine's longest one up among them.
WIDTHS = tuple(2**n for n in range(4, 16))


@dataclasses.dataclass
class Response:
    """A response on its way through the Driver.

    Attributes:
      key: raw data of its random key.
      limit: most tokens, the end-of-sequence token included.
      tokens, logp: what the engine decoded, the end-of-sequence token included.
      ended: by an end-of-sequence token.
    """

    key: np.ndarray
    limit: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    logp: list[float] = dataclasses.field(default_factory=list)
    ended: bool = False


class Text(NamedTuple):
    """A tokenizer: the tokens of a user's text as a whole prompt, and the text of tokens."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


class Prefilled:
    """A prefix as the Driver hands it on. No pytree, so the Driver neither copies nor deletes it:
    the responses to a question share one."""

    def __init__(self, prefix: Any, response: Response):
        self.prefix, self.response = prefix, response


class Adapter(engine_api.Engine):
    """An engine in JetStream's 0.2.2 form, for one version of the parameters.

    The 0.2.2 Driver has no place for a random key. It prefills in the order of arrival, in one
    thread: the n-th prompt is given the n-th response announced to `expect`, or, where none is, the
    next key of `keys`. Prompts that follow one another and are the same are prefilled once.

    `generate` decodes many tokens per call. The Driver takes them as that many "speculations".
    """

    def __init__(
        self, engine: Engine, params: Any, keys: Iterator[np.ndarray], text: Text | None = None
    ):
        """
        Args:
          engine: `prefill_questions` is best 1: the Driver prefills prompts singly.
          params: from `engine.load_params`.
          keys: raw key data for prompts that nobody announced.
          text: where text is to go in or out.

        Raises:
          ValueError: longer prompts than JetStream has widths for.
        """
        if engine.config.prompt_tokens > WIDTHS[-1]:
            raise ValueError(
                f"prompts of {engine.config.prompt_tokens} tokens; JetStream takes {WIDTHS[-1]}"
            )
        self.engine, self.keys, self.text, self._params = engine, keys, text, params
        self._expected: collections.deque[Response] = collections.deque()
        self._slots: dict[int, Response] = {}
        self._shared: tuple[bytes, Any] = (b"", None)

    def expect(self, response: Response) -> None:
        """Announces the response to a prompt, before the Driver gets the prompt."""
        self._expected.append(response)

    def load_params(self) -> Any:
        return self._params

    def init_decode_state(self) -> Any:
        self._slots.clear()
        return self.engine.init_decode_state()

    def prefill(
        self, *, params: Any, existing_prefix: Any = None, padded_tokens: Any, true_length: int
    ) -> Prefilled:
        """Raises ValueError: a prefix to build on, or a prompt of no tokens or of too many."""
        longest = self.engine.config.prompt_tokens
        if existing_prefix is not None:
            raise ValueError("existing_prefix: prompts are prefilled whole")
        if not 1 <= true_length <= longest:
            raise ValueError(f"a prompt of {true_length} tokens: 1 to {longest} fit")
        prompt_P = np.asarray(padded_tokens, np.int32)[:true_length]
        if self._shared[0] != prompt_P.tobytes():
            prefix = self.engine.prefill_prompts(params, [prompt_P])
            self._shared = prompt_P.tobytes(), prefix
        if self._expected:
            response = self._expected.popleft()
        else:
            response = Response(next(self.keys), self.engine.config.max_tokens)
        return Prefilled(self._shared[1], response)

    def insert(self, prefix: Prefilled, decode_state: Any, slot: int) -> Any:
        shared, response = prefix.prefix, prefix.response
        prefix.prefix = None  # the Driver keeps its request, and with it this object, to the end
        self._slots[slot] = response
        state = self.engine.make_room(decode_state, int(shared.cached_N[0]))
        return self.engine.start(
            shared,
            state,
            np.array([slot], np.int32),
            np.zeros(1, np.int32),
            response.key[None],
            np.array([response.limit], np.int32),
        )

    def generate(self, params: Any, decode_state: Any) -> tuple[Any, engine_api.ResultTokens]:
        """Decodes until the engine's fresh columns are full or every slot is done."""
        engine = self.engine
        state = engine.make_room(decode_state, 0)
        room = caches.widths(state.cache)[1] - int(np.max(jax.device_get(state.fill_X)))
        # Every replica makes as many steps: to the Driver, a slot with fewer tokens is finished.
        steps_X = np.full(engine.replicas, room, np.int32)
        slots_X = np.full(engine.replicas, engine.slots(state) // engine.replicas, np.int32)
        state, block = engine.generate_many(params, state, steps_X, slots_X)
        block = jax.device_get(block)
        width = max(int(block.steps_X.max()), 1)
        valid_SW = np.arange(width) < block.count_S[:, None]
        self._record(block)
        before_S1 = (block.length_S - block.count_S)[:, None]
        # JetStream finishes a slot whose length exceeds the request's, before it reads the tokens:
        # the length is that of the first of them.
        data = np.concatenate([block.tokens_SR[:, :width], valid_SW, before_S1 + 1], axis=1)
        return state, engine_api.ResultTokens(
            data=data.astype(np.int32),
            tokens_idx=(0, width),
            valid_idx=(width, 2 * width),
            length_idx=(2 * width, 2 * width + 1),
            samples_per_slot=1,
        )

    def _record(self, block: Any) -> None:
        for slot, response in list(self._slots.items()):
            count = block.count_S[slot]
            response.tokens += block.tokens_SR[slot, :count].tolist()
            response.logp += block.logp_SR[slot, :count].tolist()
            response.ended = bool(block.ended_S[slot])
            if block.done_S[slot]:
                del self._slots[slot]

    def get_tokenizer(self) -> tokenizer_pb2.TokenizerParameters:
        """Empty: the tokenizer is not one of JetStream's, see `build_tokenizer`."""
        return tokenizer_pb2.TokenizerParameters()

    def build_tokenizer(self, metadata: Any) -> tokenizer_api.Tokenizer:
        return Tokens(self.engine, self.text)

    def get_prefix_destination_sharding(self) -> Any:
        """None: one engine prefills and decodes, so nothing is transferred."""
        return None

    @property
    def max_concurrent_decodes(self) -> int:
        return self.engine.config.slots

    @property
    def samples_per_slot(self) -> int:
        return 1

    @property
    def max_prefill_length(self) -> int:
        """The least of JetStream's widths that holds our longest prompt."""
        return next(w for w in WIDTHS if w >= self.engine.config.prompt_tokens)

    @property
    def mesh(self) -> Any:
        return self.engine.mesh

    @property
    def colocated_cpus(self) -> None:
        return None


class Tokens(tokenizer_api.Tokenizer):
    """What the Driver asks of a tokenizer; text only where there is one.

    JetStream decodes token by token, so that a character made of several tokens comes out as
    replacement characters in its text; its token ids are exact.
    """

    def __init__(self, engine: Engine, text: Text | None):
        self._engine, self._text = engine, text

    def encode(self, s: str, **padding: Any) -> tuple[np.ndarray, int]:
        ids = self._text.encode(s)
        width = padding["max_prefill_length"]
        tokens = np.full(width, self.pad_id, np.int32)
        tokens[: len(ids)] = ids[:width]
        return tokens, len(ids)

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return self._text.decode(list(token_ids))

    @property
    def pad_id(self) -> int:
        return self._engine.config.pad_id

    @property
    def eos_id(self) -> int:
        return self._engine.config.eos_ids[0]

    @property
    def bos_id(self) -> int:
        return self.pad_id  # never used: prompts bring their own

    @property
    def stop_tokens(self) -> set[int]:
        return set(self._engine.config.eos_ids)
