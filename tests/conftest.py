"""Eight devices of the CPU for every test, and the small model and rollouts that many share."""

import os

# Before jax starts: the tests of meshes need several devices, and no accelerator is wanted.
os.environ["JAX_PLATFORMS"] = "cpu"
# XLA's pool: collectives of two groups of devices at once can block all of eight threads for good.
os.environ["NPROC"] = "32"
os.environ["XLA_FLAGS"] = (
    " --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
)

import hypothesis
import jax
import numpy as np
import pytest

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.types import Rollouts

# A loaded machine is no failure: examples have no deadline, the suite has a timeout.
hypothesis.settings.register_profile("tests", deadline=None, max_examples=50)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session")
def tiny():
    """(dims, params) of a two-layer Qwen2 of 32 tokens."""
    dims = ModelDims(
        family="qwen2",
        vocab=32,
        width=16,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=8,
        mlp=24,
        max_position=128,
        tied=True,
    )
    return dims, transformer.init(jax.random.key(7), dims)


@pytest.fixture(scope="session")
def ragged():
    """Rollouts of 4 questions x 3 responses with prompts of 2 to 6 and responses of 1 to 8."""
    rng = np.random.default_rng(3)
    Q, N, P, T = 4, 3, 6, 8
    prompt_length_Q = np.array([6, 2, 4, 3], np.int32)
    length_QN = rng.integers(1, T + 1, (Q, N)).astype(np.int32)
    length_QN[0, 0], length_QN[1, 1] = T, 1
    prompt_QP = np.where(
        np.arange(P) >= P - prompt_length_Q[:, None], rng.integers(4, 32, (Q, P)), 0
    ).astype(np.int32)
    inside_QNT = np.arange(T) < length_QN[..., None]
    tokens_QNT = np.where(inside_QNT, rng.integers(4, 32, (Q, N, T)), 0).astype(np.int32)
    logp_QNT = np.where(inside_QNT, -rng.random((Q, N, T)), 0).astype(np.float32)
    ended_QN = rng.random((Q, N)) < 0.5
    return Rollouts(prompt_QP, prompt_length_Q, tokens_QNT, length_QN, ended_QN, logp_QNT)
