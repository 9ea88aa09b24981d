"""Order: nothing lost or repeated within an epoch, and no state to lose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.data import order


@st.composite
def sizes(draw):
    """(number of questions, batch size)."""
    n = draw(st.integers(1, 40))
    return n, draw(st.integers(1, n))


@given(sizes(), st.integers(0, 2**63), st.integers(1, 6))
def test_every_epoch_holds_every_question_once(sizes, seed, epochs):
    n, size = sizes
    steps = -(-epochs * n // size)
    stream = np.concatenate([order.batch(n, size, seed, s) for s in range(steps)])
    for epoch in range(epochs):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))


@given(sizes(), st.integers(0, 99), st.integers(0, 10**7))
def test_no_question_is_twice_in_a_batch(sizes, seed, step):
    n, size = sizes
    assert len(set(order.batch(n, size, seed, step))) == size


@given(sizes(), st.integers(0, 99), st.integers(0, 10**7), st.integers(1, 16))
def test_processes_share_a_batch_without_loss_or_overlap(sizes, seed, step, processes):
    n, size = sizes
    whole = order.batch(n, size, seed, step)
    parts = [order.shard(whole, p, processes) for p in range(processes)]
    assert np.array_equal(np.concatenate(parts), whole)
    lengths = {len(p) for p in parts}
    assert max(lengths) - min(lengths) <= (size % processes != 0)


def test_a_step_needs_no_memory_of_the_steps_before():
    later = order.batch(100, 32, 5, 17)
    for step in range(20):
        order.batch(100, 32, 5, step)
    assert np.array_equal(order.batch(100, 32, 5, 17), later)


def test_epochs_and_seeds_are_shuffled_differently():
    orders = [tuple(order.permutation(50, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4
    assert tuple(range(50)) not in orders


def test_first_places_are_uniform():
    first = np.array([order.permutation(10, seed, 0)[0] for seed in range(2000)])
    share = np.bincount(first, minlength=10) / 2000
    assert np.abs(share - 0.1).max() < 0.03  # 4.5 standard deviations


def test_the_order_is_pinned():
    """Another order would make a resumed run see other questions than the run it continues."""
    assert order.permutation(8, 3, 1).tolist() == [5, 6, 3, 7, 0, 1, 2, 4]


@pytest.mark.parametrize(
    "args", [(0, 1, 0, 0), (1, 0, 0, 0), (3, 4, 0, 0), (1, 1, -1, 0), (1, 1, 0, -1)]
)
def test_arguments_out_of_range(args):
    with pytest.raises(ValueError, match="n_questions="):
        order.batch(*args)


def test_process_out_of_range():
    with pytest.raises(ValueError, match="process=2"):
        order.shard(np.arange(4), 2, 2)
