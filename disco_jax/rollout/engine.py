"""The decoding engine: prefill a prompt, insert its cache into slots, generate for all slots.

The method set, its names and meanings follow JetStream's Engine, with groups as first-class:
`prefill` and `prefill_multisampling` (one prompt, one or N first tokens), `insert` and
`bulk_insert`, `generate` (one token for every slot), `free_resource`. The scheduler uses the
grouped forms of the same programs: `prefill_prompts` (many prompts, no first token), `start`
(any responses into any free slots), `generate_many` (many tokens per dispatch), `slide` (the
cache of the live slots only, as wide as they need).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.rollout import cache as caches
from disco_jax.rollout.decode import Block, DecodeState, Starts
from disco_jax.rollout.layers import check_params
from disco_jax.rollout.programs import EngineConfig, Programs
from disco_jax.rollout.results import Prefix, ResultTokens

Array = jax.Array


class Engine:
    """Compiled programs for one model, one mesh and one set of static settings."""

    def __init__(self, dims: ModelDims, config: EngineConfig, mesh: Mesh):
        """Raises ValueError where slots do not divide over the mesh's data and fsdp axes."""
        self.replicas = mesh.shape["data"] * mesh.shape["fsdp"]
        if config.slots % self.replicas:
            raise ValueError(
                f"rollout.slots={config.slots} must be a multiple of data x fsdp ="
                f" {self.replicas} devices"
            )
        self.dims, self.config, self._mesh = dims, config, mesh
        self.slot_sizes = caches.ladder(
            min(max(config.least_slots, self.replicas), config.slots), config.slots, self.replicas
        )
        longest = config.prompt_tokens + config.max_tokens
        self.column_sizes = caches.ladder(min(config.least_columns, longest), longest)
        self.prompt_sizes = caches.ladder(
            min(config.least_columns, config.prompt_tokens), config.prompt_tokens
        )
        self._programs = Programs(dims, config, mesh)
        # Every shape that a program was called with: what has been compiled, and nothing else.
        self.compiled: set[tuple] = set()

    # What JetStream asks an engine about.

    @property
    def mesh(self) -> Mesh:
        return self._mesh

    @property
    def max_concurrent_decodes(self) -> int:
        return self.config.slots

    @property
    def samples_per_slot(self) -> int:
        return 1

    @property
    def max_prefill_length(self) -> int:
        return self.config.prompt_tokens

    @property
    def use_chunked_prefill(self) -> bool:
        return False

    def load_params(self, params: transformer.Params) -> transformer.Params:
        """The sampler's copy of the trainer's parameters; once per policy version.

        Args:
          params: on the engine's devices; on a CPU also on one device of it.

        Raises:
          ValueError: parameters missing, unexpected or misshapen; all of them are listed.
        """
        check_params(params, self.dims)
        if self._mesh.devices.flat[0].platform != "cpu" or self._mesh.size == 1:
            return self._programs.load(params)
        here = set(self._mesh.devices.flat)
        if any(x.sharding.device_set != here for x in jax.tree.leaves(params)):
            params = meshes.one_memory(params, self._mesh)
        return meshes.one_memory(self._programs.load(params), self._mesh)

    def init_decode_state(self, past: int | None = None, slots: int | None = None) -> DecodeState:
        """Empty slots, all done.

        Args:
          past: columns of the cache, of `column_sizes`; the fewest if None.
          slots: of `slot_sizes`; all of them if None.
        """
        return self._programs.init(
            slots=self.config.slots if slots is None else slots,
            past=self.column_sizes[0] if past is None else past,
        )

    def prefill(
        self, *, params: Any, padded_tokens: Any, true_length: int, rng: Array
    ) -> tuple[Prefix, ResultTokens]:
        """Prefills one prompt and draws the first token of one response.

        Args:
          padded_tokens: int32, the prompt and then padding.
          true_length: of the prompt, 1 to `max_prefill_length`.
          rng: the response's key; the same key gives the same response anywhere.

        Raises:
          ValueError: a prompt of no tokens, or of too many.
        """
        return self.prefill_multisampling(
            params=params, padded_tokens=padded_tokens, true_length=true_length, rng=rng[None]
        )

    def prefill_multisampling(
        self,
        *,
        params: Any,
        padded_tokens: Any,
        true_length: int,
        rng: Array,
        num_samples: int | None = None,
    ) -> tuple[Prefix, ResultTokens]:
        """Prefills one prompt once, and draws the first tokens of N responses.

        Args:
          rng: [N] keys of the responses, or one key to fold the sample numbers into.
          num_samples: N, where `rng` is one key.
        """
        if not 1 <= true_length <= self.config.prompt_tokens:
            raise ValueError(
                f"true_length={true_length}: a prompt has 1 to {self.config.prompt_tokens} tokens"
            )
        if rng.ndim == 0:
            rng = jax.vmap(jax.random.fold_in, (None, 0))(rng, np.arange(num_samples or 1))
        prompt_1P = _left_padded(
            [np.asarray(padded_tokens)[:true_length]], 1, self.prompt_sizes, self.config.pad_id
        )
        cache, hidden_QD = self._programs.prefill(
            params, prompt_1P, np.array([true_length], np.int32)
        )
        N = len(rng)
        drawn = self._programs.first_tokens(params, hidden_QD, rng)
        one_N = np.ones(N, np.int32)
        prefix = Prefix(cache, 0 * one_N, true_length * one_N, drawn.token_S, one_N, rng)
        data = jnp.stack([drawn.token_S, one_N, one_N], axis=1)
        return prefix, ResultTokens(data, drawn.drawn_logp_S[:, None])

    def insert(self, prefix: Prefix, decode_state: DecodeState, slot: int) -> DecodeState:
        """Begins the prefix's (first) response in a slot. Donates the state."""
        return self.bulk_insert(prefix, decode_state, [slot])

    def bulk_insert(
        self, prefix: Prefix, decode_state: DecodeState, slots: Sequence[int]
    ) -> DecodeState:
        """Begins the prefix's responses, the n-th in slots[n]. Donates the state.

        Raises:
          ValueError: more slots than responses, or a slot that there is not.
        """
        N, S = len(prefix.row_N), self.slots(decode_state)
        if len(slots) > N or not all(0 <= slot < S for slot in slots):
            raise ValueError(f"slots={list(slots)}: at most {N} of them, from 0 to {S - 1}")
        if prefix.key_N is None:
            raise ValueError("a prefix of prefill_prompts has no keys: use start")
        decode_state = self.make_room(decode_state, int(prefix.cached_N.max()))
        index, slot_I = np.arange(len(slots)), np.asarray(slots)
        key_data_I = np.asarray(jax.random.key_data(prefix.key_N))[index]
        limit_I = np.full(len(slots), self.config.max_tokens)
        return self.start(prefix, decode_state, slot_I, index, key_data_I, limit_I)

    def generate(self, params: Any, decode_state: DecodeState) -> tuple[DecodeState, ResultTokens]:
        """One token for every slot that is not done. Donates the state."""
        state = self.make_room(decode_state, 0)
        one_X = np.ones(self.replicas, np.int32)
        never_X = np.full(self.replicas, self.slots(state), np.int32)
        state, block = self.generate_many(params, state, one_X, never_X)
        data = jnp.stack([block.tokens_SR[:, 0], block.count_S, block.length_S], axis=1)
        return state, ResultTokens(data, block.drawn_logp_SR[:, :1])

    def free_resource(self, slot: int, decode_state: DecodeState) -> DecodeState:
        """Ends the response in a slot, which may then be filled again."""
        return self.end(decode_state, np.arange(self.slots(decode_state)) == slot)

    # What the scheduler uses.

    def end(self, state: DecodeState, stopped_S: np.ndarray) -> DecodeState:
        """Ends the responses in the given slots. Donates the state."""
        return self._programs.end(state, stopped_S)

    def slots(self, state: DecodeState) -> int:
        """The slots of a state, which may have been compacted."""
        return state.slots.done_S.shape[0]

    def _shape(self, state: DecodeState) -> tuple[int, int]:
        return self.slots(state), caches.widths(state.cache)[0]

    def prefill_prompts(self, params: Any, prompts: Sequence[np.ndarray]) -> Prefix:
        """Prefills up to `prefill_questions` prompts but for their last tokens.

        The last prompt token is the first one that decoding feeds: prefill needs no output head,
        and the responses to a prompt differ from there on.
        """
        shape = self.config.prefill_questions
        prompt_QP = _left_padded(
            [p[:-1] for p in prompts], shape, self.prompt_sizes, self.config.pad_id
        )
        cached = np.array([len(p) - 1 for p in prompts], np.int32)
        length_Q = np.pad(cached, (0, shape - len(prompts)))
        self.compiled.add(("prefill", *prompt_QP.shape))
        cache, _ = self._programs.prefill(params, prompt_QP, length_Q)
        token_N = np.array([p[-1] for p in prompts], np.int32)
        row_N = np.arange(len(prompts), dtype=np.int32)
        return Prefix(cache, row_N, cached, token_N, np.zeros_like(row_N), None)

    def start(
        self,
        prefix: Prefix,
        state: DecodeState,
        slot_I: np.ndarray,
        index_I: np.ndarray,
        key_data_I: np.ndarray,
        limit_I: np.ndarray,
    ) -> DecodeState:
        """Begins responses in free slots. Donates the state.

        Args:
          slot_I: the slots, numbered over all replicas.
          index_I: which of the prefix's beginnings each takes.
          key_data_I: the responses' keys, as `jax.random.key_data` gives them.
          limit_I: their token limits.
        """
        X, local = self.replicas, self.slots(state) // self.replicas
        columns = {
            "slot_I": np.asarray(slot_I) % local,
            "row_I": prefix.row_N[index_I],
            "token_I": np.asarray(prefix.token_N)[index_I],
            "cached_I": prefix.cached_N[index_I],
            "length_I": prefix.length_N[index_I],
            "limit_I": np.asarray(limit_I),
        }
        out = {name: np.zeros((X, local), np.int32) for name in columns}
        keys = np.zeros((X, local, *key_data_I.shape[1:]), key_data_I.dtype)
        replica_I = np.asarray(slot_I) // local
        count_X = np.zeros(X, np.int32)
        for x in range(X):
            mine = np.flatnonzero(replica_I == x)
            count_X[x] = len(mine)
            keys[x, : len(mine)] = key_data_I[mine]
            for name, values in columns.items():
                out[name][x, : len(mine)] = values[mine]
        starts = Starts(
            **{name: values.reshape(-1) for name, values in out.items()},
            key_I=jax.random.wrap_key_data(keys.reshape(X * local, -1)),
            count_X=count_X,
        )
        prompts = prefix.cache[0][1].shape[:3:2]
        self.compiled.add(("insert", *prompts, *self._shape(state)))
        return self._programs.insert(prefix.cache, state, starts)

    def generate_many(
        self, params: Any, state: DecodeState, steps_X: np.ndarray, enough_X: np.ndarray
    ) -> tuple[DecodeState, Block]:
        """Up to steps_X tokens for every slot that is not done; see `decode.decode`. Donates."""
        self.compiled.add(("decode", *self._shape(state)))
        return self._programs.decode(params, state, steps_X, enough_X)

    def slide(self, state: DecodeState, past: int, row_Y: np.ndarray | None = None) -> DecodeState:
        """Empties the fresh columns into a cache of `past` columns. Donates the state where the
        cache keeps its shape.

        Args:
          row_Y: keeps only these slots (per replica: equally many, numbered within it).
        """
        kept = self.slots(state) if row_Y is None else len(row_Y)
        slots, width = self._shape(state)
        self.compiled.add(("slide", slots, width, kept, past))
        if row_Y is None:
            slide = self._programs.slide_here if past == width else self._programs.slide
            return slide(state, past=past)
        return self._programs.compact(state, np.asarray(row_Y, np.int32), past=past)

    def make_room(self, state: DecodeState, prompt: int) -> DecodeState:
        """The state with room for one more step, and for prompts of that many cached tokens.

        For callers that do not keep count themselves: it waits for the device.
        """
        fill = int(np.max(jax.device_get(state.fill_X)))
        past, fresh = caches.widths(state.cache)
        if fill < fresh and prompt <= past:
            return state
        done_S, position_S = jax.device_get((state.slots.done_S, state.slots.position_S))
        longest = int(np.max(np.where(done_S, 0, position_S)))
        return self.slide(state, caches.round_up(max(longest, prompt, 1), self.column_sizes))


def _left_padded(
    prompts: Sequence[np.ndarray], rows: int, sizes: tuple[int, ...], pad_id: int
) -> np.ndarray:
    """[rows, P] with P the smallest of `sizes` that holds all of them."""
    width = caches.round_up(max(map(len, prompts)), sizes)
    out = np.full((rows, width), pad_id, np.int32)
    for row, prompt in zip(out, prompts, strict=False):
        row[width - len(prompt) :] = prompt
    return out
