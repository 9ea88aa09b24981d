"""The method set of JetStream's engine, on ours; what the cache and the choice of slots promise."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.rollout import cache, memory, sampling, scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.layers import check_params
from disco_jax.rollout.sampling import Sampling

P, T, N = 6, 8, 3
PROMPT = np.array([5, 9, 4, 17], np.int32)
CONFIG = EngineConfig(
    prompt_tokens=P,
    max_tokens=T,
    slots=4,
    prefill_questions=1,
    steps_per_dispatch=4,
    sampling=Sampling(0.8, top_k=12),
    eos_ids=(2,),
    pad_id=0,
    dtype=jnp.float32,
    least_slots=2,
    least_columns=P + T,
)


def one_device():
    return meshes.make_mesh((1, 1, 1), jax.devices()[:1])


@pytest.fixture(scope="module")
def engine(tiny):
    return Engine(tiny[0], CONFIG, one_device())


@pytest.fixture(scope="module")
def params(engine, tiny):
    return engine.load_params(tiny[1])


@pytest.fixture(scope="module")
def expected(engine, params):
    """The scheduler's rollouts of the prompt, and their keys."""
    key_QN = sampling.response_keys(3, "train", 0, np.array([7]), N)
    prompt_QP = np.pad(PROMPT, (P - len(PROMPT), 0))[None]
    stats = scheduler.Stats()
    found = scheduler.sample(
        engine, params, prompt_QP, np.array([len(PROMPT)]), key_QN, stats=stats
    )
    return found, key_QN[0], stats


def decode(engine, params, state, first, slots):
    """All tokens and log-probabilities of the responses in `slots`, one generate at a time."""
    tokens, logp = [[int(t)] for t in first.data[:, 0]], [[float(x)] for x in first.log_prob[:, 0]]
    for _ in range(T - 1):
        state, result = engine.generate(params, state)
        result.copy_to_host_async()
        result = result.convert_to_numpy()
        assert result.data.shape == (engine.slots(state), 3)
        for n, slot in enumerate(slots):
            one = result.get_result_at_slot(slot)
            if one.valid[0, 0]:
                tokens[n].append(int(one.tokens[0, 0]))
                logp[n].append(float(one.log_prob[0, 0]))
                assert one.lengths[0] == len(tokens[n])
    return state, tokens, logp


def test_one_token_at_a_time_gives_the_schedulers_tokens(engine, params, expected):
    found, key_N, _ = expected
    padded = np.pad(PROMPT, (0, 20))
    prefix, first = engine.prefill_multisampling(
        params=params, padded_tokens=padded, true_length=len(PROMPT), rng=key_N
    )
    slots = [3, 0, 2]
    state = engine.bulk_insert(prefix, engine.init_decode_state(), slots)
    state, tokens, _ = decode(engine, params, state, first, slots)
    for n in range(N):
        length = found.length_QN[0, n]
        np.testing.assert_array_equal(tokens[n], found.tokens_QNT[0, n, :length])
    assert np.asarray(state.slots.done_S)[[0, 2, 3]].all()


def test_a_prefix_of_one_response_goes_into_a_freed_slot(engine, params, expected):
    found, key_N, _ = expected
    state = engine.init_decode_state()
    for n in (1, 0):  # the first is cut short, the second takes its slot
        prefix, first = engine.prefill(
            params=params, padded_tokens=PROMPT, true_length=len(PROMPT), rng=key_N[n]
        )
        state = engine.insert(prefix, state, 1)
        if n:
            state, result = engine.generate(params, state)
            state = engine.free_resource(1, state)
            assert np.asarray(state.slots.done_S).all()
    _, (tokens,), _ = decode(engine, params, state, first, [1])
    np.testing.assert_array_equal(tokens, found.tokens_QNT[0, 0, : found.length_QN[0, 0]])


def test_the_figures_of_a_call_add_up(engine, expected):
    found, _, stats = expected
    assert stats.tokens == found.length_QN.sum()
    assert stats.prompts == 1
    assert 0 <= stats.wasted < 1 and 0 < stats.occupancy <= 1
    assert stats.slot_steps <= stats.full_steps
    assert {shape[0] for shape in engine.compiled} <= {"prefill", "insert", "decode", "slide"}
    for kind, slots, past in (shape for shape in engine.compiled if shape[0] == "decode"):
        assert slots in engine.slot_sizes and past in engine.column_sizes, kind


def test_wrong_calls_are_refused(engine, params, expected):
    key = expected[1][0]
    for length in (0, P + 1):
        with pytest.raises(ValueError, match=f"true_length={length}"):
            engine.prefill(params=params, padded_tokens=PROMPT, true_length=length, rng=key)
    prefix, _ = engine.prefill(params=params, padded_tokens=PROMPT, true_length=4, rng=key)
    with pytest.raises(ValueError, match="at most 1 of them, from 0 to 3"):
        engine.bulk_insert(prefix, engine.init_decode_state(), [0, 1])
    with pytest.raises(ValueError, match="no keys"):
        engine.insert(engine.prefill_prompts(params, [PROMPT]), engine.init_decode_state(), 0)


def test_parameters_that_do_not_fit_are_named(tiny):
    dims, params = tiny
    layers = {k: v for k, v in params["layers"].items() if k != "gate"}
    damaged = {**params, "layers": {**layers, "up": params["layers"]["up"][:, 1:]}}
    with pytest.raises(ValueError) as error:
        check_params(damaged, dims)
    assert "layers.gate: missing, expected (2, 16, 24)" in str(error.value)
    assert "layers.up: (2, 15, 24), expected (2, 16, 24)" in str(error.value)
    assert "embed" not in str(error.value)


def test_responses_stop_where_they_are_told(engine, params, expected):
    """By limits, by what they say, and all at once; whatever comes before is unchanged."""
    found, key_N, _ = expected
    prompt_QP = np.pad(PROMPT, (P - len(PROMPT), 0))[None]
    length_Q = np.array([len(PROMPT)])
    limit_QN = np.array([[1, 3, T]])
    limited = scheduler.sample(engine, params, prompt_QP, length_Q, key_N[None], limit_QN=limit_QN)
    np.testing.assert_array_equal(limited.length_QN, np.minimum(found.length_QN, limit_QN))
    long = int(found.length_QN[0].argmax())
    assert found.length_QN[0, long] > 3
    marker = found.tokens_QNT[0, long, 2]

    def stop(tokens):
        at = np.flatnonzero(tokens == marker)
        return int(at[0]) + 1 if len(at) else None

    stopped = scheduler.sample(engine, params, prompt_QP, length_Q, key_N[None], stop=stop)
    for n in range(N):
        whole = found.tokens_QNT[0, n, : found.length_QN[0, n]]
        keep = stop(whole) or len(whole)
        assert stopped.length_QN[0, n] == keep
        np.testing.assert_array_equal(stopped.tokens_QNT[0, n, :keep], whole[:keep])
        assert (stopped.tokens_QNT[0, n, keep:] == CONFIG.pad_id).all()
        assert stopped.ended_QN[0, n] or stop(whole) is None
    aborted = scheduler.sample(
        engine, params, prompt_QP, length_Q, key_N[None], aborted=lambda: True
    )
    assert (aborted.length_QN <= CONFIG.steps_per_dispatch).all()
    with pytest.raises(ValueError, match="limits of 0 to"):
        scheduler.sample(engine, params, prompt_QP, length_Q, key_N[None], limit_QN=0 * limit_QN)


def ragged(slots, devices):
    """What 128 responses of geometric lengths, the longest 64, take on so many slots."""
    dims = ModelDims("llama", 16, 8, 1, 1, 1, 8, 8, 512, tied=True)
    change = dict(
        max_tokens=64, slots=slots, prefill_questions=16, steps_per_dispatch=32, eos_ids=(),
        least_slots=4, least_columns=64 + P, sampling=Sampling(0.6),
    )  # fmt: skip
    mesh = meshes.make_mesh((devices, 1, 1), jax.devices()[:devices])
    engine = Engine(dims, dataclasses.replace(CONFIG, **change), mesh)
    params = engine.load_params(transformer.init(jax.random.key(0), dims))
    limit_QN = np.minimum(np.random.default_rng(0).geometric(1 / 16, (16, 8)), 64)
    key_QN = sampling.response_keys(0, "train", 0, np.arange(16), 8)
    stats = scheduler.Stats()
    prompt_QP = np.full((16, P), 3, np.int32)
    found = scheduler.sample(
        engine, params, prompt_QP, np.full(16, P), key_QN, limit_QN=limit_QN, stats=stats
    )
    np.testing.assert_array_equal(found.length_QN, limit_QN)
    return stats, limit_QN


def test_little_of_what_is_decoded_is_wasted():
    """On 32 slots: under a tenth."""
    stats, _ = ragged(32, 1)
    assert stats.wasted < 0.1, stats


def test_replicas_seldom_wait_for_the_slowest():
    """A replica that stops when it has something to report idles while others go on."""
    stats, limit_QN = ragged(128, 8)
    assert stats.full_steps / 128 <= 1.1 * limit_QN.max(), stats


def test_bfloat16_in_float32_columns_is_bfloat16():
    """On a CPU the fresh columns are float32: not a bit may differ from bfloat16 ones."""
    dims, S, W, R = ModelDims("llama", 16, 8, 2, 2, 1, 4, 8, 64, tied=True), 3, 8, 4
    random = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(random.normal(size=shape), jnp.bfloat16)

    prompts = tuple((draw(2, 1, 4, W), draw(2, 1, W, 4)) for _ in range(dims.layers))
    q, k, v = draw(R, S, 2, 4), draw(R, S, 1, 4), draw(R, S, 1, 4)
    slot, row, start = jnp.array([2, 0, 1]), jnp.array([1, 0, 0]), jnp.array([0, 3, 5])
    found = []
    for fresh_dtype in (jnp.bfloat16, jnp.float32):
        kept = cache.empty(dims, S, W, R, jnp.bfloat16, fresh_dtype)
        kept = cache.insert(kept, prompts, slot, row, 3, 1)
        outs = []
        for at in range(1, R):
            out, layer = cache.attend(kept[0], q[at], k[at], v[at], start, at)
            kept = (layer, *kept[1:])
            outs.append(out)
        kept = cache.slide(kept, jnp.int32(R), W + 2, np.array([2, 0]))
        assert kept[0].past_k.dtype == jnp.bfloat16 and kept[0].fresh_k.dtype == fresh_dtype
        found.append((outs, [layer[:2] for layer in kept]))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
    engine = Engine(dims, dataclasses.replace(CONFIG, dtype=jnp.bfloat16), one_device())
    assert engine.init_decode_state().cache[0].fresh_k.dtype == jnp.float32


def test_a_tied_head_of_its_own_is_the_embedding(tiny):
    dims, params = tiny
    assert dims.tied
    engine = Engine(dims, dataclasses.replace(CONFIG, dtype=jnp.bfloat16), one_device())
    copy = engine.load_params(params)
    np.testing.assert_array_equal(copy["head"], params["embed"].astype(jnp.bfloat16).T)


def test_replicas_on_a_cpu_read_one_copy_of_the_weights(tiny):
    engine = Engine(tiny[0], CONFIG, meshes.make_mesh((2, 1, 1), jax.devices()[:2]))
    copy = engine.load_params(tiny[1])  # which lie on the first device
    for x in jax.tree.leaves(copy):
        one, other = (shard.data for shard in x.addressable_shards)
        assert one.unsafe_buffer_pointer() == other.unsafe_buffer_pointer()
    np.testing.assert_array_equal(copy["embed"], tiny[1]["embed"])
    # But not the trainer's own: an update gives that memory away.
    trainers = {x.unsafe_buffer_pointer() for x in jax.tree.leaves(tiny[1])}
    copies = [x.addressable_shards[0].data for x in jax.tree.leaves(copy)]
    assert trainers.isdisjoint(x.unsafe_buffer_pointer() for x in copies)


def test_a_cache_that_keeps_its_width_slides_where_it_is(engine):
    state = engine.init_decode_state()
    moved = engine.slide(state, cache.widths(state.cache)[0])
    assert state.cache[0].past_k.is_deleted() and not moved.cache[0].past_k.is_deleted()


@pytest.mark.parametrize("least", range(1, 9))
@pytest.mark.parametrize("multiple", [1, 4])
def test_a_ladder_has_few_steps_and_wastes_little(least, multiple):
    for most in (least, least + 1, 7 * least + 3, 1000):
        most = -(-most // multiple) * multiple
        sizes = cache.ladder(least, most, multiple)
        assert list(sizes) == sorted(set(sizes)) and sizes[-1] == most
        assert all(size % multiple == 0 for size in sizes)
        for size in range(max(least, 2 * multiple), most + 1):
            rounded = cache.round_up(size, sizes)
            assert size <= rounded <= 1.5 * size + multiple
        assert len(sizes) <= 2 * np.log2(max(most / least, 1)) + 3


def test_the_slots_that_fit_are_those_of_the_arithmetic(tiny):
    dims, _ = tiny
    mesh = one_device()
    each = memory.slot_bytes(dims, 100, 4)
    assert each == 2 * (2 * 2 * 1 * 8 * 100 * 4) + 4 * 32 * 4
    fit = functools.partial(memory.fit_slots, dims, mesh, dtype=jnp.float32)
    some = fit(columns=100, free=2**20, beside=40_000, most=1000)
    room = 0.85 * 2**20 - 40_000 - 4 * 2_560
    assert some.slots in (2**i * k // 2 for i in range(12) for k in (2, 3))
    assert 0.6 * room / each < some.slots <= room / each
    assert re.search(rf"^{some.slots} slots .*columns takes", some.why)
    assert fit(columns=100, free=2**30, beside=0, most=10).slots == 10
    with pytest.raises(ValueError, match="not one slot fits"):
        fit(columns=10**6, free=2**20, beside=0, most=1)
    assert memory.free_bytes(mesh) > 0
