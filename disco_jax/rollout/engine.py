"""The decoding engine: prefill a prompt, insert its cache into slots, generate for all slots.

The method set follows JetStream's engine contract. A slot's cache holds P prompt positions
(left-padded) and then its response, so that cache index P + t is response token t whatever the
prompt's length. The last prompt token is fed again as the first decoding step: the N responses
to a question share one prefill and differ from their first token on.

Shapes are static: one compilation each of prefill, insert and generate.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.model.attention import cached_attention
from disco_jax.model.dims import ModelDims
from disco_jax.rollout import sampling

Array = jax.Array
Cache = tuple[tuple[Array, Array], ...]  # per layer: keys and values [S, K, C, d]


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Static settings of the engine's programs.

    Attributes:
      prompt_tokens: P, the width of left-padded prompts.
      max_tokens: T, the limit on response tokens, end-of-sequence token included.
      slots: S, the responses decoded at once.
      prefill_questions: prompts in one prefill call.
      steps_per_dispatch: decoding steps before the host looks at the slots again.
      temperature, top_p: see `sampling.sample`.
      eos_ids: a response ends with the first of these.
      pad_id: fills unused positions.
      dtype: of activations, matrices and the cache.
    """

    prompt_tokens: int
    max_tokens: int
    slots: int
    prefill_questions: int
    steps_per_dispatch: int
    temperature: float
    top_p: float
    eos_ids: tuple[int, ...]
    pad_id: int
    dtype: Any


class Prefix(NamedTuple):
    """Prefilled prompts: the cache of each, and what decoding needs to go on from it."""

    cache: Cache  # [Q, K, P, d]
    prompt_length_Q: Array
    last_token_Q: Array


class DecodeState(NamedTuple):
    """All slots. `length_S` response tokens of a slot exist; a done slot decodes nothing."""

    cache: Cache  # [S, K, P + T, d]
    prompt_length_S: Array
    token_S: Array  # the newest token, not yet fed
    length_S: Array
    done_S: Array
    ended_S: Array  # done by an end-of-sequence token
    key_S: Array
    tokens_ST: Array
    logp_ST: Array


class Engine:
    """Compiled programs for one model, one mesh and one set of static settings."""

    def __init__(self, dims: ModelDims, config: EngineConfig, mesh: Mesh):
        """Raises ValueError where slots do not divide over the mesh's data and fsdp axes."""
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        if config.slots % shards:
            raise ValueError(
                f"rollout.slots={config.slots} must be a multiple of data x fsdp = {shards} devices"
            )
        self.dims, self.config, self.mesh = dims, config, mesh
        rows, everywhere = meshes.rows(mesh), meshes.replicated(mesh)
        self._load = jax.jit(
            functools.partial(transformer.unstack, dims=dims, dtype=config.dtype),
            out_shardings=everywhere,
        )
        self._prefill = jax.jit(
            functools.partial(_prefill, dims=dims, config=config), out_shardings=everywhere
        )
        self._init = jax.jit(
            functools.partial(_init_state, dims=dims, config=config), out_shardings=rows
        )
        self._insert = jax.jit(
            functools.partial(_bulk_insert, config=config),
            donate_argnames="state",
            out_shardings=rows,
        )
        self._generate = jax.jit(
            functools.partial(_generate, dims=dims, config=config),
            donate_argnames="state",
            out_shardings=rows,
        )

    @property
    def max_concurrent_decodes(self) -> int:
        return self.config.slots

    def load_params(self, params: transformer.Params) -> transformer.Params:
        """The sampler's copy of the trainer's parameters; once per policy version."""
        return self._load(params)

    def init_decode_state(self) -> DecodeState:
        """Empty slots, all done."""
        return self._init()

    def prefill(self, params, prompt_QP: Array, prompt_length_Q: Array) -> Prefix:
        """Runs left-padded prompts [prefill_questions, P]; rows of length 0 are padding."""
        return self._prefill(params, prompt_QP, prompt_length_Q)

    def bulk_insert(
        self, prefix: Prefix, state: DecodeState, source_S: Array, key_S: Array
    ) -> DecodeState:
        """Starts a response in every slot with source_S >= 0, from that row of the prefix.

        Slots with source_S < 0 go on as they were. `state` is donated.
        """
        return self._insert(prefix, state=state, source_S=source_S, key_S=key_S)

    def generate(self, params, state: DecodeState) -> DecodeState:
        """Up to `steps_per_dispatch` tokens for every slot that is not done. Donates `state`."""
        return self._generate(params, state=state)


def _init_state(dims: ModelDims, config: EngineConfig) -> DecodeState:
    S, T = config.slots, config.max_tokens
    shape = (S, dims.kv_heads, config.prompt_tokens + T, dims.head_dim)
    cache = tuple(
        (jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype)) for _ in range(dims.layers)
    )
    zero_S = jnp.zeros(S, jnp.int32)
    return DecodeState(
        cache=cache,
        prompt_length_S=zero_S,
        token_S=zero_S,
        length_S=zero_S,
        done_S=jnp.ones(S, bool),
        ended_S=jnp.zeros(S, bool),
        key_S=jax.random.split(jax.random.key(0), S),
        tokens_ST=jnp.full((S, T), config.pad_id, jnp.int32),
        logp_ST=jnp.zeros((S, T), jnp.float32),
    )


def _prefill(params, prompt_QP, prompt_length_Q, *, dims: ModelDims, config: EngineConfig):
    P = config.prompt_tokens
    index_P = jnp.arange(P)
    first_Q1 = P - prompt_length_Q[:, None]
    # A padding position sees only itself, so that no row of the softmax is empty.
    seen_QPP = (index_P[None, None, :] >= first_Q1[..., None]) & jnp.tri(P, dtype=bool)
    mask_QPP = seen_QPP | jnp.eye(P, dtype=bool)

    def attend(q, k, v, _):
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
        return cached_attention(q, k, v, mask_QPP), (k, v)

    position_QP = jnp.maximum(index_P - first_Q1, 0)
    empty = (None,) * dims.layers
    _, cache = transformer.extend(
        params, dims, prompt_QP, position_QP, empty, attend, dtype=config.dtype
    )
    return Prefix(cache, prompt_length_Q, prompt_QP[:, -1])


def _bulk_insert(prefix: Prefix, state: DecodeState, source_S, key_S, *, config: EngineConfig):
    new_S, row_S = source_S >= 0, jnp.maximum(source_S, 0)
    P = config.prompt_tokens

    def fill(slot_SKCd: Array, prompt_QKPd: Array) -> Array:
        old_SKPd = slot_SKCd[:, :, :P]
        chosen_SKPd = jnp.where(new_S[:, None, None, None], prompt_QKPd[row_S], old_SKPd)
        return slot_SKCd.at[:, :, :P].set(chosen_SKPd)

    def choose(fresh_S: Array, old_S: Array) -> Array:
        return jnp.where(new_S.reshape(-1, *(1,) * (fresh_S.ndim - 1)), fresh_S, old_S)

    return state._replace(
        cache=jax.tree.map(fill, state.cache, prefix.cache),
        prompt_length_S=choose(prefix.prompt_length_Q[row_S], state.prompt_length_S),
        token_S=choose(prefix.last_token_Q[row_S], state.token_S),
        length_S=jnp.where(new_S, 0, state.length_S),
        done_S=state.done_S & ~new_S,
        ended_S=state.ended_S & ~new_S,
        key_S=jnp.where(new_S, key_S, state.key_S),
        tokens_ST=jnp.where(new_S[:, None], config.pad_id, state.tokens_ST),
        logp_ST=jnp.where(new_S[:, None], 0.0, state.logp_ST),
    )


def _decode_step(params, head_DV, state: DecodeState, dims: ModelDims, config: EngineConfig):
    """One token for every slot that is not done."""
    P, T = config.prompt_tokens, config.max_tokens
    slot_S = jnp.arange(config.slots)
    index_S = P - 1 + state.length_S  # where the newest token's keys and values go
    index_C = jnp.arange(P + T)
    mask_SC = (index_C >= P - state.prompt_length_S[:, None]) & (index_C <= index_S[:, None])

    def attend(q, k, v, cache):
        k_SKCd, v_SKCd = cache
        k_SKCd = k_SKCd.at[slot_S, :, index_S].set(k[:, 0], unique_indices=True)
        v_SKCd = v_SKCd.at[slot_S, :, index_S].set(v[:, 0], unique_indices=True)
        return cached_attention(q, k_SKCd, v_SKCd, mask_SC[:, None]), (k_SKCd, v_SKCd)

    position_S1 = (state.prompt_length_S - 1 + state.length_S)[:, None]
    hidden_S1D, cache = transformer.extend(
        params, dims, state.token_S[:, None], position_S1, state.cache, attend, dtype=config.dtype
    )
    logits_SV = jnp.dot(hidden_S1D[:, 0], head_DV, preferred_element_type=jnp.float32)
    token_S, logp_S = sampling.sample(
        logits_SV, state.key_S, state.length_S, config.temperature, config.top_p
    )
    live_S = ~state.done_S
    write_S = jnp.where(live_S, state.length_S, T)  # T is out of range: the write is dropped
    length_S = state.length_S + live_S
    eos_S = live_S & jnp.isin(token_S, jnp.asarray(config.eos_ids, jnp.int32))
    return state._replace(
        cache=cache,
        token_S=jnp.where(live_S, token_S, state.token_S),
        length_S=length_S,
        done_S=state.done_S | eos_S | (length_S >= T),
        ended_S=state.ended_S | eos_S,
        tokens_ST=state.tokens_ST.at[slot_S, write_S].set(token_S, mode="drop"),
        logp_ST=state.logp_ST.at[slot_S, write_S].set(logp_S, mode="drop"),
    )


def _generate(params, state: DecodeState, *, dims: ModelDims, config: EngineConfig):
    head_DV = transformer.head_weights(params, dims)

    def unfinished(carry) -> Array:
        steps, state = carry
        return (steps < config.steps_per_dispatch) & ~jnp.all(state.done_S)

    def body(carry):
        steps, state = carry
        return steps + 1, _decode_step(params, head_DV, state, dims, config)

    return jax.lax.while_loop(unfinished, body, (0, state))[1]
