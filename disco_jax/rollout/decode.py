"""The device programs of one replica of slots: prefill, insert, decode, slide.

Pure functions of arrays; `engine.py` compiles them, over a mesh where there is one. Every
program works on one replica's own slots and needs no other's: replicas never wait for one another
within a dispatch.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from disco_jax.model import transformer
from disco_jax.model.attention import cached_attention
from disco_jax.model.dims import ModelDims
from disco_jax.rollout import cache as caches
from disco_jax.rollout.cache import Cache, PromptCache
from disco_jax.rollout.layers import extend, logits
from disco_jax.rollout.sampling import Sampling, sample

Array = jax.Array


class Slots(NamedTuple):
    """What each slot is doing. A done slot decodes nothing that anybody reads."""

    token_S: Array  # int32, the newest token, not yet fed to the model
    position_S: Array  # int32, of that token in prompt and response
    start_S: Array  # int32, first column of the slot's context
    length_S: Array  # int32, response tokens so far
    limit_S: Array  # int32, the response's token limit
    done_S: Array  # bool
    ended_S: Array  # bool, done by an end-of-sequence token
    key_S: Array  # typed PRNG keys of the responses


class DecodeState(NamedTuple):
    """All slots of all replicas; sharded by rows. Donated to every program that changes it."""

    cache: Cache
    slots: Slots
    fill_X: Array  # int32, fresh columns in use, per replica


class Block(NamedTuple):
    """What one dispatch decoded. A slot's tokens are the first `count_S` of its row.

    Two log-probabilities per token, both float32: `logp_SR` at the temperature over the whole
    vocabulary, which is what the trainer recomputes (at temperature 1 when greedy), and
    `drawn_logp_SR` of the distribution that the token was drawn from, after top-k, top-p and
    min-p (0 when greedy). They are equal where nothing is cut off.
    """

    tokens_SR: Array
    logp_SR: Array
    drawn_logp_SR: Array
    count_S: Array  # int32
    length_S: Array  # int32, response tokens after this dispatch
    done_S: Array
    ended_S: Array
    fill_X: Array  # int32, fresh columns in use after this dispatch
    steps_X: Array  # int32, decoding steps made


class Starts(NamedTuple):
    """Responses about to begin, I per replica; those from `count_X` on are padding."""

    slot_I: Array  # int32, slot within the replica
    row_I: Array  # int32, row of the prefix
    token_I: Array  # int32, first token to feed
    cached_I: Array  # int32, cached tokens of its prompt, which is the position of that token
    length_I: Array  # int32, response tokens that exist already: 0, or 1 drawn by prefill
    limit_I: Array  # int32
    key_I: Array
    count_X: Array  # int32


def init_state(
    dims: ModelDims,
    *,
    slots: int,
    replicas: int,
    past: int,
    fresh: int,
    dtype: Any,
    fresh_dtype: Any,
) -> DecodeState:
    """Empty slots, all done."""
    zero_S = jnp.zeros(slots, jnp.int32)
    return DecodeState(
        caches.empty(dims, slots, past, fresh, dtype, fresh_dtype),
        Slots(
            token_S=zero_S,
            position_S=zero_S,
            start_S=zero_S,
            length_S=zero_S,
            limit_S=zero_S,
            done_S=jnp.ones(slots, bool),
            ended_S=jnp.zeros(slots, bool),
            key_S=jax.random.split(jax.random.key(0), slots),
        ),
        jnp.zeros(replicas, jnp.int32),
    )


def prefill(params, tokens_QP: Array, length_Q: Array, *, dims: ModelDims, dtype: Any):
    """Runs left-padded prompts; a row of length 0 is padding.

    Returns the prompts' cache and the hidden states of their last tokens [Q, D].
    """
    P = tokens_QP.shape[1]
    index_P = jnp.arange(P)
    first_Q1 = P - length_Q[:, None]
    # A padding position sees only itself, so that no row of the softmax is empty.
    seen_QPP = (index_P[None, None, :] >= first_Q1[..., None]) & jnp.tri(P, dtype=bool)
    mask_QPP = seen_QPP | jnp.eye(P, dtype=bool)

    def attend(q, k, v, _):
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
        return cached_attention(q, k, v, mask_QPP), (k.swapaxes(2, 3), v)

    position_QP = jnp.maximum(index_P - first_Q1, 0)
    angles = transformer.rope_tables(position_QP, dims)
    hidden_QPD, cache = extend(
        params, dims, tokens_QP, angles, (None,) * dims.layers, attend, dtype=dtype
    )
    return cache, hidden_QPD[:, -1]


def end(state: DecodeState, stopped_S: Array) -> DecodeState:
    """Ends the responses in some slots."""
    slots = state.slots._replace(done_S=state.slots.done_S | stopped_S)
    return state._replace(slots=slots)


def insert(prompts: PromptCache, state: DecodeState, starts: Starts, eos_ids) -> DecodeState:
    """Begins responses in slots that are done."""
    count, fill = starts.count_X[0], state.fill_X[0]
    cache = caches.insert(state.cache, prompts, starts.slot_I, starts.row_I, count, fill)
    slots = state.slots
    W, _ = caches.widths(state.cache)
    S = slots.done_S.shape[0]
    target_I = jnp.where(jnp.arange(len(starts.slot_I)) < count, starts.slot_I, S)  # S: dropped
    ended_I = (starts.length_I > 0) & jnp.isin(starts.token_I, jnp.asarray(eos_ids, jnp.int32))
    fresh = Slots(
        token_S=starts.token_I,
        position_S=starts.cached_I,
        start_S=W + fill - starts.cached_I,
        length_S=starts.length_I,
        limit_S=starts.limit_I,
        done_S=ended_I | (starts.length_I >= starts.limit_I),
        ended_S=ended_I,
        key_S=starts.key_I,
    )
    slots = jax.tree.map(lambda old, new: old.at[target_I].set(new, mode="drop"), slots, fresh)
    return DecodeState(cache, slots, state.fill_X)


def decode(
    params,
    state: DecodeState,
    steps_X: Array,
    enough_X: Array,
    *,
    dims: ModelDims,
    dtype: Any,
    sampling: Sampling,
    eos_ids: tuple[int, ...],
    longest: int,
) -> tuple[DecodeState, Block]:
    """Decodes until steps_X tokens are made, the fresh columns are full, or enough slots are done.

    Args:
      steps_X: int32 [1], the most steps.
      enough_X: int32 [1]: the loop ends when that many slots are done, for then the host has
        something to do: refill them, or drop them from the batch.
      longest: positions of the longest prompt and response together.
    """
    S, (_, R) = state.slots.done_S.shape[0], caches.widths(state.cache)
    begin, length_S = state.fill_X[0], state.slots.length_S
    last = jnp.minimum(begin + steps_X[0], R)
    outputs = (
        jnp.zeros((S, R), jnp.int32),
        jnp.zeros((S, R), jnp.float32),
        jnp.zeros((S, R), jnp.float32),
    )

    step = functools.partial(_step, dims=dims, dtype=dtype, sampling=sampling, eos_ids=eos_ids)
    # Rows of a table: sines taken in the loop are fused into every consumer, element by element.
    tables = transformer.rope_tables(jnp.arange(longest), dims)

    def unfinished(carry) -> Array:
        fill, _, slots, _ = carry
        return (fill < last) & (jnp.sum(slots.done_S) < enough_X[0])

    def body(carry):
        fill, cache, slots, outputs = carry
        drawn, cache, slots = step(params, cache, slots, fill, tables)
        outputs = tuple(
            jax.lax.dynamic_update_slice_in_dim(out, x_S[:, None], fill - begin, axis=1)
            for out, x_S in zip(outputs, drawn, strict=True)
        )
        return fill + 1, cache, slots, outputs

    carry = (begin, state.cache, state.slots, outputs)
    fill, cache, slots, outputs = jax.lax.while_loop(unfinished, body, carry)
    block = Block(
        *outputs,
        count_S=slots.length_S - length_S,
        length_S=slots.length_S,
        done_S=slots.done_S,
        ended_S=slots.ended_S,
        fill_X=fill[None],
        steps_X=(fill - begin)[None],
    )
    return DecodeState(cache, slots, fill[None]), block


def _step(params, cache: Cache, slots: Slots, at: Array, tables, *, dims, dtype, sampling, eos_ids):
    """One token for every slot that is not done."""

    def attend(q, k, v, layer):
        out_SHd, layer = caches.attend(layer, q[:, 0], k[:, 0], v[:, 0], slots.start_S, at)
        return out_SHd[:, None], layer

    angles = tuple(table[slots.position_S[:, None]] for table in tables)
    hidden_S1D, cache = extend(
        params, dims, slots.token_S[:, None], angles, cache, attend, dtype=dtype
    )
    logits_SV = logits(params, hidden_S1D[:, 0], dims)
    drawn = sample(logits_SV, slots.key_S, slots.length_S, sampling)
    live_S = ~slots.done_S
    length_S = slots.length_S + live_S
    eos_S = live_S & jnp.isin(drawn.token_S, jnp.asarray(eos_ids, jnp.int32))
    slots = slots._replace(
        token_S=jnp.where(live_S, drawn.token_S, slots.token_S),
        position_S=slots.position_S + live_S,
        length_S=length_S,
        done_S=slots.done_S | eos_S | (length_S >= slots.limit_S),
        ended_S=slots.ended_S | eos_S,
    )
    return drawn, cache, slots


def slide(state: DecodeState, row_Y: Array | None, *, past: int) -> DecodeState:
    """Empties the fresh columns into a past of `past` columns, keeping the slots `row_Y`."""
    W, _ = caches.widths(state.cache)
    fill = state.fill_X[0]
    slots = state.slots
    if row_Y is not None:
        slots = jax.tree.map(lambda x: x[row_Y], slots)
    slots = slots._replace(start_S=slots.start_S + (past - W) - fill)
    cache = caches.slide(state.cache, fill, past, row_Y)
    return DecodeState(cache, slots, jnp.zeros_like(state.fill_X))
