"""Which questions a step takes: a pure function of (seed, step), so a restart needs no state.

The epochs' permutations follow one another in one endless stream and step s takes the positions
[s B, (s+1) B) of it. No question is lost or repeated within an epoch, whatever the batch size.
Where B does not divide the number of questions a batch straddles two epochs, and may then hold
one question twice: random numbers must be keyed by the position in the batch, not by the question.
"""

import numpy as np


def batch(n_questions: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Indices of the questions of one step, int64 [batch_size].

    Args:
      n_questions: size of the question set, at least 1; may be smaller than `batch_size`.
      seed, step: not negative; steps count from 0.

    Raises:
      ValueError: an argument out of range.
    """
    if n_questions < 1 or batch_size < 1 or seed < 0 or step < 0:
        raise ValueError(
            f"n_questions={n_questions}, batch_size={batch_size}, seed={seed}, step={step}: "
            "the first two at least 1, the others at least 0"
        )
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, places = np.divmod(positions, n_questions)
    indices = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        indices[here] = permutation(n_questions, seed, int(epoch))[places[here]]
    return indices


def permutation(n: int, *key: int) -> np.ndarray:
    """The order of one epoch, int64 [n], for key = (seed, epoch); longer keys give other orders.

    Sorted raw bits of Philox rather than numpy's own shuffle: numpy promises the bits of a bit
    generator for ever, but may change its shuffle between versions.
    """
    bits = np.random.Philox(np.random.SeedSequence(key)).random_raw(n)
    return np.argsort(bits, kind="stable")


def epoch_of(n_questions: int, batch_size: int, step: int) -> float:
    """Epochs completed before `step`, as a fraction for the log."""
    return step * batch_size / n_questions


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
