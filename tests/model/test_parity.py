"""The decoder against transformers: recorded figures, and live where torch is installed.

`experiments/hf_parity/make.py` recorded them. The bound is 2e-4 on float32 logits of size 5.
"""

import functools
import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_jax.model import dims as model_dims
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer, weights
from disco_jax.model.dims import ModelDims, RopeScaling
from disco_jax.rollout import scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling, response_keys

DATA = pathlib.Path(__file__).parent / "data"
CASES = ["llama3", "qwen2", "qwen2_tied", "qwen3"]
BOUND = 2e-4


@functools.partial(jax.jit, static_argnames="dims")
def logits(params, dims, tokens_BL):
    position_BL = jnp.broadcast_to(jnp.arange(tokens_BL.shape[1]), tokens_BL.shape)
    hidden_BLD = transformer.hidden_states(
        params,
        dims,
        tokens_BL,
        position_BL,
        jnp.ones_like(tokens_BL),
        dtype=jnp.float32,
        remat="none",
    )
    return hidden_BLD @ transformer.head_weights(params, dims)


@functools.cache
def recorded(case):
    """(dims, params, what transformers computed)."""
    dims = weights.read_dims(DATA / case)
    with np.load(DATA / case / "expected.npz") as expected:
        return dims, weights.load(DATA / case, dims), dict(expected)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case):
    dims, params, expected = recorded(case)
    ours_BLV = logits(params, dims, expected["tokens_BL"])
    assert np.abs(expected["logits_BLV"]).max() > 3  # a model that says nothing would agree too
    np.testing.assert_allclose(ours_BLV, expected["logits_BLV"], atol=BOUND, rtol=0)


def test_the_bound_would_notice_each_part_of_the_model():
    """Frequency scaling, biases and head norms all move the logits by far more than the bound."""
    for case, name in [("llama3", "rope"), ("qwen2", "q_bias"), ("qwen3", "k_norm")]:
        dims, params, expected = recorded(case)
        if name == "rope":
            dims = model_dims.from_hf(model_dims.to_hf(dims) | {"rope_scaling": None})
        else:
            layers = params["layers"] | {name: jnp.ones_like(params["layers"][name])}
            params = params | {"layers": layers}
        moved = np.abs(logits(params, dims, expected["tokens_BL"]) - expected["logits_BLV"]).max()
        assert moved > 100 * BOUND, name


@pytest.mark.parametrize("case", CASES)
def test_greedy_continuations_are_those_of_transformers(case):
    """Through the sampler: prefill of padded prompts, cache and decoding."""
    dims, params, expected = recorded(case)
    B, T = expected["greedy_BT"].shape
    length = expected["tokens_BL"].shape[1] - T - 4
    config = EngineConfig(
        prompt_tokens=length + 3,
        max_tokens=T,
        slots=B,
        prefill_questions=B,
        steps_per_dispatch=T,
        sampling=Sampling(temperature=0),
        eos_ids=(),
        pad_id=0,
        dtype=jnp.float32,
        least_slots=B,
        least_columns=length + 3 + T,
    )
    engine = Engine(dims, config, meshes.make_mesh((1, 1, 1), jax.devices()[:1]))
    prompt_BP = np.pad(expected["tokens_BL"][:, :length], ((0, 0), (3, 0)))
    key_BN = response_keys(0, "train", 0, np.arange(B), 1)
    rollouts = scheduler.sample(
        engine, engine.load_params(params), prompt_BP, np.full(B, length, np.int32), key_BN
    )
    np.testing.assert_array_equal(rollouts.tokens_QNT[:, 0], expected["greedy_BT"])


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (extra `parity`)"
)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_transformers_computes_the_same_from_our_export(family, tmp_path):
    """Live, from our side: random parameters of ours, exported and read by transformers."""
    import torch
    import transformers

    scaling = RopeScaling(4.0, 1.0, 4.0, 16) if family == "llama" else None
    dims = ModelDims(
        family, 96, 48, 3, 6, 2, 8, 64, 128, 50_000.0, scaling, 1e-5, family != "llama"
    )
    params = transformer.init(jax.random.key(1), dims)
    noise = jax.tree.map(lambda x: 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), params)
    params = jax.tree.map(jnp.add, params, noise)
    weights.save(tmp_path / "model", dims, params)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float32, attn_implementation="eager"
    )
    tokens_BL = np.random.default_rng(0).integers(0, dims.vocab, (2, 50)).astype(np.int32)
    with torch.no_grad():
        theirs_BLV = model(torch.from_numpy(tokens_BL).long()).logits.numpy()
    ours_BLV = logits(params, dims, tokens_BL)
    scale = np.abs(theirs_BLV).max()
    assert scale > 3
    np.testing.assert_allclose(ours_BLV / scale, theirs_BLV / scale, atol=BOUND / 3, rtol=0)
    model.save_pretrained(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert model_dims.from_hf(config) == dims
