"""How much of the packed rows is padding."""

import numpy as np
import pytest

from disco_jax.types import Rollouts
from disco_jax.update import packing


def test_waste_counts_every_padding_token_and_empty_row(ragged):
    micros = packing.pack(ragged, row_tokens=20, rows=3)
    need = ragged.prompt_length_Q[:, None] + ragged.length_QN - 1
    tokens = len(micros) * 3 * 20
    assert packing.waste(micros) == (tokens - need.sum(), tokens)


@pytest.mark.parametrize("mean", [1500, 3000, 4500, 6000])
def test_rows_of_8k_responses_are_nearly_full(mean):
    """A minibatch of the paper, 32 questions x 8 responses, on one device and on two."""
    Q, N, P, T = 32, 8, 1024, 8192
    for seed in range(3):
        rng = np.random.default_rng(seed)
        length_QN = np.minimum(rng.geometric(1 / mean, (Q, N)), T).astype(np.int32)
        prompt_length_Q = rng.integers(60, 500, Q).astype(np.int32)
        rollouts = Rollouts(
            prompt_QP=np.zeros((Q, P), np.int32),
            prompt_length_Q=prompt_length_Q,
            tokens_QNT=np.zeros((Q, N, T), np.int32),
            length_QN=length_QN,
            ended_QN=length_QN < T,
            logp_QNT=np.zeros((Q, N, T), np.float32),
        )
        for rows in (1, 2):
            share = packing.waste(packing.pack(rollouts, P + T, rows)).value
            assert share < 0.05, f"{share:.1%} of {rows} x {P + T} tokens, seed {seed}"
