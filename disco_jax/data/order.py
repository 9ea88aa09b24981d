"""Which questions a step takes: a pure function of (seed, step), so a restart needs no state.

The epochs' permutations follow one another in one endless stream and step s takes the positions
[s B, (s+1) B) of it. No question is lost or repeated within an epoch, whatever the batch size, and
none is twice in a batch: where a batch straddles two epochs, the later one starts with questions
that the end of the earlier one does not hold. (A question that stood twice in a step would be
given the same random numbers, and the same responses, twice.)
"""

import math

import numpy as np


def batch(n_questions: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Indices of the questions of one step, int64 [batch_size], all different.

    Args:
      n_questions: size of the question set, at least `batch_size`.
      seed, step: not negative; steps count from 0.

    Raises:
      ValueError: an argument out of range.
    """
    if not 1 <= batch_size <= n_questions or seed < 0 or step < 0:
        raise ValueError(
            f"n_questions={n_questions}, batch_size={batch_size}, seed={seed}, step={step}: a "
            "batch holds from 1 to n_questions questions; seed and step are at least 0"
        )
    epoch, place = divmod(step * batch_size, n_questions)
    part = _epoch(n_questions, batch_size, seed, epoch)[place : place + batch_size]
    if len(part) == batch_size:
        return part
    after = _epoch(n_questions, batch_size, seed, epoch + 1)[: batch_size - len(part)]
    return np.concatenate([part, after])


def _epoch(n: int, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """One epoch's order, int64 [n]: its permutation, adapted to the epochs before it.

    Only those since a batch last ended with an epoch matter: fewer than batch_size of them.
    """
    first = epoch - epoch % (batch_size // math.gcd(n, batch_size))
    indices = permutation(n, seed, first)
    for e in range(first + 1, epoch + 1):
        taken = e * n % batch_size  # of the straddling batch, by the epoch before
        mixed = permutation(n, seed, e)
        if taken:
            fresh = np.flatnonzero(~np.isin(mixed, indices[n - taken :]))[: batch_size - taken]
            mixed = np.concatenate([mixed[fresh], np.delete(mixed, fresh)])
        indices = mixed
    return indices


def permutation(n: int, *key: int) -> np.ndarray:
    """The order of one epoch, int64 [n], for key = (seed, epoch); longer keys give other orders.

    Sorted raw bits of Philox rather than numpy's own shuffle: numpy promises the bits of a bit
    generator for ever, but may change its shuffle between versions.
    """
    bits = np.random.Philox(np.random.SeedSequence(key)).random_raw(n)
    return np.argsort(bits, kind="stable")


def shard(indices: np.ndarray, process: int, processes: int) -> np.ndarray:
    """The contiguous part of a batch that one process reads, samples and grades.

    The parts of all processes, joined in order, are the batch; their sizes differ by one at most,
    and not at all where `processes` divides the batch.

    Raises:
      ValueError: not 0 <= process < processes.
    """
    if not 0 <= process < processes:
        raise ValueError(f"process={process} of processes={processes}: counts from 0")
    start, stop = (len(indices) * p // processes for p in (process, process + 1))
    return indices[start:stop]
