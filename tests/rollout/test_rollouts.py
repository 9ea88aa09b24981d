import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import logprobs, transformer
from disco_jax.model import mesh as meshes
from disco_jax.rollout import sampling, scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling
from disco_jax.update import packing

Q, N, P, T = 5, 3, 6, 9
CONFIG = EngineConfig(
    prompt_tokens=P,
    max_tokens=T,
    slots=Q * N,
    prefill_questions=Q,
    steps_per_dispatch=4,
    sampling=Sampling(0.8),
    eos_ids=(2, 3),
    pad_id=0,
    dtype=jnp.float32,
    least_slots=Q * N,
    least_columns=P + T,
)


FEW = {"slots": 4, "least_slots": 4, "prefill_questions": 2, "steps_per_dispatch": 5}
FEW["least_columns"] = 8


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(0)
    length_Q = np.array([1, 6, 3, 4, 2], np.int32)
    prompt_QP = np.where(np.arange(P) >= P - length_Q[:, None], rng.integers(4, 32, (Q, P)), 0)
    return prompt_QP.astype(np.int32), length_Q


@functools.cache
def make_engine(dims, config, mesh_shape):
    """Compiled once for all tests."""
    devices = jax.devices()[: np.prod(mesh_shape)]
    return Engine(dims, config, meshes.make_mesh(mesh_shape, devices))


def roll(tiny, prompts, mesh_shape=(1, 1, 1), on_finish=None, seed=0, **change):
    dims, params = tiny
    engine = make_engine(dims, dataclasses.replace(CONFIG, **change), mesh_shape)
    key_QN = sampling.response_keys(seed, "train", 4, np.arange(Q) + 100, N)
    return scheduler.sample(engine, engine.load_params(params), *prompts, key_QN, on_finish)


@pytest.fixture(scope="module")
def expected(tiny, prompts):
    return roll(tiny, prompts)


@pytest.mark.parametrize(
    "change",
    [
        {"slots": 1, "prefill_questions": 1, "steps_per_dispatch": 1},
        FEW,
        {"slots": 64, "least_slots": 8},
        {"slots": 8, "mesh_shape": (2, 2, 1)},
        {"slots": 8, "mesh_shape": (1, 4, 2), "least_slots": 4},
    ],
    ids=str,
)
def test_tokens_depend_on_nothing_but_their_own_keys(tiny, prompts, expected, change):
    found = roll(tiny, prompts, **change)
    np.testing.assert_array_equal(found.tokens_QNT, expected.tokens_QNT)
    np.testing.assert_array_equal(found.length_QN, expected.length_QN)
    np.testing.assert_array_equal(found.ended_QN, expected.ended_QN)
    np.testing.assert_allclose(found.logp_QNT, expected.logp_QNT, atol=2e-5)


def test_responses_end_where_they_should(expected):
    found = expected
    assert len(np.unique(found.tokens_QNT.reshape(Q * N, T), axis=0)) > Q  # samples differ
    assert found.ended_QN.any() and not found.ended_QN.all()
    for q, n in np.ndindex(Q, N):
        tokens_T, length = found.tokens_QNT[q, n], found.length_QN[q, n]
        eos_T = np.isin(tokens_T[:length], CONFIG.eos_ids)
        assert not eos_T[:-1].any()
        assert eos_T[-1] == found.ended_QN[q, n]
        assert found.ended_QN[q, n] or length == T
        assert (tokens_T[length:] == CONFIG.pad_id).all()
        assert (found.logp_QNT[q, n, :length] < 0).all()


def test_every_response_is_handed_on_once(tiny, prompts):
    seen = {}

    def finish(q, n, tokens):
        assert (q, n) not in seen
        seen[q, n] = tokens

    found = roll(tiny, prompts, on_finish=finish, **FEW)
    assert len(seen) == Q * N
    for (q, n), tokens in seen.items():
        np.testing.assert_array_equal(tokens, found.tokens_QNT[q, n, : found.length_QN[q, n]])


def test_sampler_and_trainer_agree_on_log_probabilities(tiny, expected):
    dims, params = tiny
    found = expected
    (micro,) = packing.pack(found, row_tokens=P + T, rows=Q * N)
    hidden_BLD = transformer.hidden_states(
        params, dims, micro.tokens_BL, micro.position_BL, micro.segment_BL,
        dtype=jnp.float32, remat="none",
    )  # fmt: skip
    head_DV = transformer.head_weights(params, dims)
    stats = logprobs.token_stats(
        hidden_BLD, head_DV, micro.target_BL, CONFIG.sampling.temperature, 1000
    )
    logp_QNT = np.zeros(Q * N * T + 1, np.float32)
    logp_QNT[micro.index_BL] = stats.logp_BL
    mask_QNT = np.arange(T) < found.length_QN[..., None]
    logp_QNT = np.where(mask_QNT, logp_QNT[:-1].reshape(Q, N, T), 0)
    np.testing.assert_allclose(found.logp_QNT, logp_QNT, atol=2e-5)


def test_greedy_takes_the_most_likely_token(tiny, prompts):
    found = roll(tiny, prompts, sampling=Sampling(0.0))
    other = roll(tiny, prompts, sampling=Sampling(0.0), seed=1)
    np.testing.assert_array_equal(found.tokens_QNT, other.tokens_QNT)
    assert (found.tokens_QNT == found.tokens_QNT[:, :1]).all()


def test_samples_follow_the_distribution():
    logits_V = jnp.array([0.0, 1.0, 2.0, -1.0])
    S = 20_000
    key_S = jax.random.split(jax.random.key(0), S)
    logits_SV, zero_S = jnp.tile(logits_V, (S, 1)), jnp.zeros(S, jnp.int32)
    token_S, logp_S, drawn_logp_S = sampling.sample(logits_SV, key_S, zero_S, Sampling(0.7))
    p_V = jax.nn.softmax(logits_V / 0.7)
    share_V = np.bincount(token_S, minlength=4) / S
    np.testing.assert_allclose(share_V, p_V, atol=4 * np.sqrt(0.25 / S))  # four sigma
    np.testing.assert_allclose(logp_S, jnp.log(p_V)[token_S], atol=1e-5)
    np.testing.assert_array_equal(logp_S, drawn_logp_S)


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, 1), (0.7, 2), (0.95, 3), (1.0, 4)])
def test_nucleus_keeps_the_smallest_sufficient_set(top_p, kept):
    logits_SV = jnp.log(jnp.array([[0.1, 0.6, 0.05, 0.25], [0.6, 0.1, 0.25, 0.05]]))
    allowed_SV = np.isfinite(sampling.nucleus(logits_SV, top_p))
    assert (allowed_SV.sum(-1) == kept).all()
    assert allowed_SV[0, 1] and allowed_SV[1, 0]


@pytest.mark.parametrize(
    ("cut", "kept"),
    [({"top_k": 1}, 1), ({"top_k": 3}, 3), ({"min_p": 0.4}, 2), ({"top_k": 3, "min_p": 0.5}, 1)],
    ids=str,
)
def test_only_allowed_tokens_are_drawn(cut, kept):
    """And the log-probability of the distribution drawn from is that of what is left."""
    p_V = np.array([0.1, 0.6, 0.05, 0.25])
    S = 4000
    logits_SV, zero_S = jnp.tile(jnp.log(p_V), (S, 1)), jnp.zeros(S, jnp.int32)
    key_S = jax.random.split(jax.random.key(1), S)
    drawn = sampling.sample(logits_SV, key_S, zero_S, Sampling(1.0, **cut))
    left_V = np.where(p_V >= np.sort(p_V)[-kept], p_V, 0)
    left_V /= left_V.sum()
    share_V = np.bincount(drawn.token_S, minlength=4) / S
    np.testing.assert_allclose(share_V, left_V, atol=4 * np.sqrt(0.25 / S))
    assert (left_V[drawn.token_S] > 0).all()
    np.testing.assert_allclose(drawn.logp_S, np.log(p_V)[drawn.token_S], atol=1e-5)
    np.testing.assert_allclose(drawn.drawn_logp_S, np.log(left_V[drawn.token_S]), atol=1e-5)


def test_a_draw_follows_its_weights_over_many_blocks():
    V, S = 1000, 50_000
    weight_V = np.random.default_rng(0).exponential(size=V) * (np.arange(V) % 3 > 0)
    uniform_S2 = jax.random.uniform(jax.random.key(0), (S, 2))
    index_S = sampling.choose(jnp.tile(weight_V.astype(np.float32), (S, 1)), uniform_S2)
    assert (weight_V[index_S] > 0).all()
    wanted_V = S * weight_V / weight_V.sum()
    found_V = np.bincount(index_S, minlength=V)
    chi2 = ((found_V - wanted_V)[wanted_V > 0] ** 2 / wanted_V[wanted_V > 0]).sum()
    freedom = (wanted_V > 0).sum() - 1
    assert abs(chi2 - freedom) < 5 * np.sqrt(2 * freedom)


def test_values_out_of_range_are_named():
    for bad in ({"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.0}):
        with pytest.raises(ValueError, match=f"rollout.{next(iter(bad))}"):
            Sampling(**bad)


def test_keys_differ_wherever_one_number_differs():
    def data(*args):
        return np.asarray(jax.random.key_data(sampling.response_keys(*args))).reshape(-1, 2)

    base = (0, "train", 3, np.array([5, 6]), 2)
    everything = [data(*base)]
    everything += [data(1, *base[1:]), data(0, "eval", *base[2:])]
    everything += [data(0, "train", 4, *base[3:]), data(*base[:3], np.array([7, 8]), 2)]
    assert len(np.unique(np.concatenate(everything), axis=0)) == 5 * 4


def test_wrong_prompts_are_refused(tiny, prompts):
    prompt_QP, length_Q = prompts
    with pytest.raises(ValueError, match="the engine takes"):
        roll(tiny, (prompt_QP[:, 1:], length_Q))
    with pytest.raises(ValueError, match="question 2 has an empty prompt"):
        roll(tiny, (prompt_QP, np.where(np.arange(Q) == 2, 0, length_Q)))
    with pytest.raises(ValueError, match="slots=6 must be a multiple"):
        roll(tiny, prompts, slots=6, mesh_shape=(2, 2, 1))
